// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/diff"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/health"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync/common"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

// argoCDManager is the field manager of Argo CD.
const argoCDManager = "argocd-controller"

// argoCD does for one Application what its application controller does: it compares, and syncs.
type argoCD struct {
	*cluster
	kubectl    *kube.KubectlCmd
	serverSide bool // ServerSideApply=true and ServerSideDiff=true
}

// TestArgoCD: Argo CD registers the API when the server is ready, reports no difference in fields
// of other owners, and replaces the Jobs when their image changes.
func TestArgoCD(t *testing.T) {
	for mode, serverSide := range map[string]bool{"server-side apply": true, "client-side apply": false} {
		t.Run(mode, func(t *testing.T) {
			p := newProject(t)
			objects := p.render("production")
			a := &argoCD{newCluster(t, objects), &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}},
				serverSide}
			a.sync(objects)
			a.checkOwners()
			a.checkJobs("v1")
			if kinds := a.outOfSync(objects); len(kinds) > 0 {
				t.Errorf("out of sync after the first sync: %q", kinds)
			}
			a.sync(objects)
			a.checkOwners()
			a.checkJobs("v1")
			p.setTag("v2")
			objects = p.render("production")
			if serverSide && !slices.Contains(a.outOfSync(objects), "Deployment "+name) {
				t.Errorf("in sync with another image: %q", a.outOfSync(objects))
			}
			a.sync(objects)
			a.checkOwners()
			a.checkJobs("v2")
			if kinds := a.outOfSync(objects); len(kinds) > 0 {
				t.Errorf("out of sync after the upgrade: %q", kinds)
			}
		})
	}
}

// sync runs a sync until it has completed. Argo CD creates a context with the live objects for each
// step, as this function does.
func (a *argoCD) sync(objects []*unstructured.Unstructured) {
	a.Helper()
	var phase common.OperationPhase
	var message string
	var results []common.ResourceSyncResult
	started := metav1.Now()
	// The default is foreground, for which a cluster needs the garbage collector.
	propagation := metav1.DeletePropagationBackground
	step := func(ctx context.Context) (bool, error) {
		syncContext, cleanup, err := sync.NewSyncContext("0123456789", a.compare(objects), a.config, a.config, a.kubectl,
			namespace,
			sync.WithLogr(logr.Discard()),
			sync.WithHealthOverride(podHealth{a.cluster}),
			sync.WithInitialState(phase, message, results, started),
			sync.WithOperationSettings(false, true, false, false), // dryRun, prune, force, skipHooks
			sync.WithPrunePropagationPolicy(&propagation),
			sync.WithServerSideApply(a.serverSide),
			sync.WithServerSideApplyManager(argoCDManager),
		)
		if err != nil {
			return false, err
		}
		defer cleanup()
		syncContext.Sync(ctx)
		phase, message, results = syncContext.GetState()
		if !a.issued {
			a.checkUnregistered()
		}
		a.act()
		return phase.Completed(), nil
	}
	err := wait.PollUntilContextTimeout(a.Context(), 200*time.Millisecond, patience, true, step)
	if err != nil || !phase.Successful() {
		a.Fatalf("sync: %v; phase %s: %s; results %+v", err, phase, message, results)
	}
}

// compare pairs the objects with those in the cluster.
func (a *argoCD) compare(objects []*unstructured.Unstructured) sync.ReconciliationResult {
	a.Helper()
	var targets []*unstructured.Unstructured
	live := map[kube.ResourceKey]*unstructured.Unstructured{}
	for _, obj := range objects {
		targets = append(targets, obj.DeepCopy())
		if found := a.get(obj); found != nil {
			live[kube.GetResourceKey(found)] = found
		}
	}
	return sync.Reconcile(targets, live, namespace, a)
}

// IsNamespaced implements kube.ResourceInfoProvider.
func (a *argoCD) IsNamespaced(gk schema.GroupKind) (bool, error) {
	mapping, err := a.client.RESTMapper().RESTMapping(gk)
	if err != nil {
		return false, err
	}
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

// outOfSync returns the objects that differ. Client-side, it compares only those with fields of
// other owners, because the defaults that Argo CD knows are not those of every Kubernetes version.
func (a *argoCD) outOfSync(objects []*unstructured.Unstructured) []string {
	a.Helper()
	_, parser, err := a.kubectl.LoadOpenAPISchema(a.config)
	if err != nil {
		a.Fatal(err)
	}
	applier, cleanup, err := a.kubectl.ManageServerSideDiffDryRuns(a.config)
	if err != nil {
		a.Fatal(err)
	}
	defer cleanup()
	compared := a.compare(objects)
	result, err := diff.DiffArray(a.Context(), compared.Target, compared.Live,
		diff.WithLogr(logr.Discard()),
		diff.WithNormalizer(withoutStatus{}),
		diff.WithManager(argoCDManager),
		diff.WithGVKParser(parser),
		diff.WithServerSideDiff(a.serverSide),
		diff.WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(applier)),
	)
	if err != nil {
		a.Fatal(err)
	}
	var out []string
	for i, d := range result.Diffs {
		target := compared.Target[i]
		if target == nil || !d.Modified { // a hook has no target
			continue
		}
		if a.serverSide || target.GetKind() == "APIService" || target.GetKind() == "Secret" {
			out = append(out, describe(target))
			a.Logf("%s: live %s, predicted %s", describe(target), d.NormalizedLive, d.PredictedLive)
		}
	}
	return out
}

// withoutStatus removes the status, as Argo CD does by default.
type withoutStatus struct{}

// Normalize implements diff.Normalizer.
func (withoutStatus) Normalize(obj *unstructured.Unstructured) error {
	unstructured.RemoveNestedField(obj.Object, "status")
	return nil
}

// podHealth reports the health that objects would have if their pods ran.
type podHealth struct{ *cluster }

// GetResourceHealth implements health.HealthOverride.
func (p podHealth) GetResourceHealth(obj *unstructured.Unstructured) (*health.HealthStatus, error) {
	healthy := false
	switch obj.GetKind() {
	case "Deployment":
		healthy = p.issued
	case "Job":
		healthy = p.completed[obj.GetUID()]
	case "APIService":
		healthy = p.issued && bundleOf(*obj) != ""
	default:
		return nil, nil // the check of Argo CD
	}
	if healthy {
		return &health.HealthStatus{Status: health.HealthStatusHealthy}, nil
	}
	return &health.HealthStatus{Status: health.HealthStatusProgressing}, nil
}
