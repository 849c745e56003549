// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/normalize"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	fluxManager = "kustomize-controller"
	fluxGroup   = "kustomize.toolkit.fluxcd.io"
)

// flux applies objects as kustomize-controller does.
type flux struct {
	*cluster
	manager *ssa.ResourceManager
}

// TestFlux: with the two Kustomizations, Flux registers the API when the Jobs of the first one have
// completed, changes nothing in a second reconciliation, and recreates the Jobs when their image
// changes.
func TestFlux(t *testing.T) {
	p := newProject(t)
	c := newCluster(t, p.render("production"))
	f := &flux{c, ssa.NewResourceManager(c.client,
		polling.NewStatusPoller(c.client, c.client.RESTMapper(), polling.Options{}),
		ssa.Owner{Field: fluxManager, Group: fluxGroup})}
	f.reconcile(p)
	f.checkOwners()
	f.checkJobs("v1")
	for _, entry := range f.reconcile(p) {
		if entry.Action != ssa.UnchangedAction {
			t.Errorf("second reconciliation: %s", entry)
		}
	}
	f.checkOwners()
	f.checkJobs("v1")
	p.setTag("v2")
	f.reconcile(p)
	f.checkOwners()
	f.checkJobs("v2")
}

// reconcile reconciles both Kustomizations. With wait: true, the second one starts when the Jobs of
// the first one have completed, and the server is ready.
func (f *flux) reconcile(p *project) []ssa.ChangeSetEntry {
	f.Helper()
	changes := f.apply(name, p.render("gitops-server"))
	if !f.issued {
		f.checkUnregistered()
	}
	f.act()
	for _, job := range f.jobs() {
		if !f.completed[job.UID] {
			f.Fatalf("the Job %s waits, so the first Kustomization does not get ready", job.Name)
		}
	}
	changes = append(changes, f.apply(name+"-api", p.render("gitops-api"))...)
	f.act()
	return changes
}

// apply applies the objects of a Kustomization.
func (f *flux) apply(kustomization string, objects []*unstructured.Unstructured) []ssa.ChangeSetEntry {
	f.Helper()
	f.manager.SetOwnerLabels(objects, kustomization, "flux-system")
	if err := normalize.UnstructuredList(objects); err != nil {
		f.Fatal(err)
	}
	// The options of kustomize-controller.
	options := ssa.DefaultApplyOptions()
	options.ExclusionSelector = map[string]string{fluxGroup + "/reconcile": "disabled", fluxGroup + "/ssa": "ignore"}
	options.IfNotPresentSelector = map[string]string{fluxGroup + "/ssa": "ifnotpresent"}
	options.ForceSelector = map[string]string{fluxGroup + "/force": "enabled"}
	options.Cleanup = ssa.ApplyCleanupOptions{
		Annotations: []string{corev1.LastAppliedConfigAnnotation},
		FieldManagers: []ssa.FieldManager{
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationApply},
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationUpdate},
			{Name: "before-first-apply", OperationType: metav1.ManagedFieldsOperationUpdate},
			{Name: fluxManager, OperationType: metav1.ManagedFieldsOperationUpdate},
		},
		Exclusions: map[string]string{fluxGroup + "/ssa": "merge"},
	}
	changes, err := f.manager.ApplyAllStaged(f.Context(), objects, options)
	if err != nil {
		f.Fatalf("apply %s: %v", kustomization, err)
	}
	return changes.Entries
}
