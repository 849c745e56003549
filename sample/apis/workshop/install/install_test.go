// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"example.com/extension-apiserver/sample/apis/workshop"
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(AddToScheme(scheme))
	return scheme
}

// TestVersions: the order of the list is the order in which clients are offered the versions, the first is stored.
func TestVersions(t *testing.T) {
	if diff := cmp.Diff(GroupVersions(), newScheme().PrioritizedVersionsForGroup(workshop.GroupName)); diff != "" {
		t.Errorf("order of preference (-want +got):\n%s", diff)
	}
	if got, want := StorageVersion(), Versions[0].GroupVersion; got != want {
		t.Errorf("stored version: got %s, want %s", got, want)
	}
	seen := map[string]bool{}
	for _, v := range Versions {
		if v.GroupVersion.Group != workshop.GroupName {
			t.Errorf("group of %s: got %s, want %s", v.GroupVersion, v.GroupVersion.Group, workshop.GroupName)
		}
		if seen[v.GroupVersion.Version] {
			t.Errorf("%s is listed twice", v.GroupVersion)
		}
		seen[v.GroupVersion.Version] = true
	}
}

// TestKinds: every served kind has an internal form, or it could be neither stored nor converted; every internal kind is
// served by a version, and its first home is the stored version.
func TestKinds(t *testing.T) {
	scheme := newScheme()
	// AddToGroupVersion registers the options of requests in every group version.
	options := runtime.NewScheme()
	for _, v := range Versions {
		metav1.AddToGroupVersion(options, v.GroupVersion)
		kinds := 0
		for kind := range scheme.KnownTypes(v.GroupVersion) {
			if options.Recognizes(v.GroupVersion.WithKind(kind)) {
				continue
			}
			kinds++
			if !scheme.Recognizes(workshop.SchemeGroupVersion.WithKind(kind)) {
				t.Errorf("%s %s has no internal form: register it in sample/apis/workshop", v.GroupVersion, kind)
			}
		}
		if kinds == 0 {
			t.Errorf("%s: got no kind, want at least one", v.GroupVersion)
		}
	}
	for kind := range scheme.KnownTypes(workshop.SchemeGroupVersion) {
		if kind == metav1.WatchEventKind {
			continue
		}
		if !scheme.Recognizes(StorageVersion().WithKind(kind)) {
			t.Errorf("kind %s: the stored version %s does not know it", kind, StorageVersion())
		}
	}
}
