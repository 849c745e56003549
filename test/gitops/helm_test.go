// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// helm runs the actions of the helm command. They do not wait, because no pods run.
type helm struct {
	*cluster
	project *project
}

// TestHelm: with the chart, Helm registers the API in the second step, an upgrade without a change
// changes nothing but the Jobs, and an upgrade replaces the Jobs.
func TestHelm(t *testing.T) {
	kube.ManagedFieldsManager = "helm" // as the helm command does
	p := newProject(t)
	objects := p.render("production")
	h := helm{newCluster(t, objects), p}
	h.install()
	h.checkUnregistered()
	h.act()
	for _, job := range h.jobs() {
		if !h.completed[job.UID] {
			t.Fatalf("the Job %s waits, so the installation does not complete", job.Name)
		}
	}
	h.upgrade(map[string]any{"register": true})
	h.act()
	h.checkOwners()
	h.checkJobs("v1")
	before := h.state(objects)
	h.upgrade(nil) // keeps the values
	h.act()
	h.checkOwners()
	h.checkJobs("v1")
	if diff := cmp.Diff(before, h.state(objects)); diff != "" {
		t.Errorf("an upgrade to the same manifests changed (-before +after):\n%s", diff)
	}
	p.setTag("v2")
	h.upgrade(nil)
	h.act()
	h.checkOwners()
	h.checkJobs("v2")
}

func (h helm) install() {
	h.Helper()
	install := action.NewInstall(h.configuration())
	install.ReleaseName, install.Namespace, install.CreateNamespace = name, releases, true
	install.WaitStrategy, install.Timeout = kube.HookOnlyStrategy, patience
	if _, err := install.RunWithContext(h.Context(), h.load(), map[string]any{}); err != nil {
		h.Fatalf("helm install: %v", err)
	}
}

func (h helm) upgrade(values map[string]any) {
	h.Helper()
	upgrade := action.NewUpgrade(h.configuration())
	upgrade.Namespace, upgrade.WaitStrategy, upgrade.Timeout = releases, kube.HookOnlyStrategy, patience
	if _, err := upgrade.RunWithContext(h.Context(), name, h.load(), values); err != nil {
		h.Fatalf("helm upgrade: %v", err)
	}
}

// configuration returns a configuration with empty caches, as each run of the command has.
func (h helm) configuration() *action.Configuration {
	h.Helper()
	flags := genericclioptions.NewConfigFlags(false)
	ns, cache := releases, h.TempDir()
	flags.KubeConfig, flags.Namespace, flags.CacheDir = &h.kubeconfig, &ns, &cache
	configuration := action.NewConfiguration()
	if err := configuration.Init(flags, releases, "secret"); err != nil {
		h.Fatal(err)
	}
	return configuration
}

// load renders and loads the chart.
func (h helm) load() chart.Charter {
	h.Helper()
	loaded, err := loader.Load(h.project.chart())
	if err != nil {
		h.Fatal(err)
	}
	return loaded
}

// state returns the objects in the cluster except the Jobs, without the fields that kube-apiserver
// changes by itself.
func (h helm) state(objects []*unstructured.Unstructured) map[string]any {
	h.Helper()
	out := map[string]any{}
	for _, obj := range objects {
		if obj.GetKind() == "Job" {
			continue
		}
		live := h.get(obj)
		if live == nil {
			h.Errorf("%s does not exist", describe(obj))
			continue
		}
		unstructured.RemoveNestedField(live.Object, "status")
		unstructured.RemoveNestedField(live.Object, "metadata", "resourceVersion")
		unstructured.RemoveNestedField(live.Object, "metadata", "managedFields")
		out[describe(obj)] = live.Object
	}
	return out
}
