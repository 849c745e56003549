// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"example.com/extension-apiserver/sample/apis/workshop"
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(AddToScheme(scheme))
	return scheme
}

// TestVersions checks that clients are offered the versions in the order of the list, and that
// the first version is stored.
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

// TestKinds checks that the storage version, to which the others are converted, defines every
// kind.
func TestKinds(t *testing.T) {
	scheme, served := newScheme(), map[schema.GroupVersion]bool{}
	for _, gvk := range servedKinds(scheme) {
		served[gvk.GroupVersion()] = true
		if !scheme.Recognizes(StorageVersion().WithKind(gvk.Kind)) {
			t.Errorf("%s: the stored version %s does not know the kind", gvk, StorageVersion())
		}
	}
	for _, gv := range GroupVersions() {
		if !served[gv] {
			t.Errorf("%s: got no kind, want at least one", gv)
		}
	}
}
