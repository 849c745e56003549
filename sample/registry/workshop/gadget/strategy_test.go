// SPDX-License-Identifier: Apache-2.0

package gadget

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/sample/apis/workshop"
	"example.com/extension-apiserver/sample/apis/workshop/install"
	validation "example.com/extension-apiserver/sample/validation/workshop"
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(install.AddToScheme(scheme))
	utilruntime.Must(validation.AddToScheme(scheme))
	return scheme
}

// eachVersion runs the test with the context of a request in each version that knows the kind: the generated rules run
// on the version of the request.
func eachVersion(t *testing.T, test func(*testing.T, context.Context)) {
	t.Helper()
	for _, gv := range install.GroupVersions() {
		if !newScheme().Recognizes(gv.WithKind("Gadget")) {
			continue
		}
		t.Run(gv.Version, func(t *testing.T) {
			// A cluster-scoped resource has the empty namespace.
			ctx := genericapirequest.WithNamespace(t.Context(), metav1.NamespaceNone)
			test(t, genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
				IsResourceRequest: true, APIGroup: gv.Group, APIVersion: gv.Version, Resource: "gadgets",
			}))
		})
	}
}

// stored returns a valid gadget as the store has it: defaulted, with the metadata that the server sets.
func stored() *workshop.Gadget {
	return &workshop.Gadget{
		ObjectMeta: metav1.ObjectMeta{Name: "g", UID: "7", ResourceVersion: "5", Generation: 3},
		Spec:       workshop.GadgetSpec{Purpose: "measures", Precision: new(int32(2))},
	}
}

// changed returns a stored gadget with a change.
func changed(change func(*workshop.Gadget)) *workshop.Gadget {
	g := stored()
	change(g)
	return g
}

// problems lists errors as "field: type".
func problems(errs field.ErrorList) []string {
	var out []string
	for _, err := range errs {
		out = append(out, fmt.Sprintf("%s: %s", err.Field, err.Type))
	}
	return out
}

// TestCreate: the generation of a new gadget is 1, whatever the client says.
func TestCreate(t *testing.T) {
	eachVersion(t, func(t *testing.T, ctx context.Context) {
		got := changed(func(g *workshop.Gadget) { g.Generation = 99 })
		if err := rest.BeforeCreate(newStrategy(newScheme()), ctx, got); err != nil {
			t.Fatalf("create a valid gadget: %v", err)
		}
		if diff := cmp.Diff(changed(func(g *workshop.Gadget) { g.Generation = 1 }), got); diff != "" {
			t.Errorf("gadget as it is stored (-want +got):\n%s", diff)
		}
	})
}

// TestUpdate: the generation counts the changes of the spec.
func TestUpdate(t *testing.T) {
	for _, tc := range []struct {
		name       string
		change     func(*workshop.Gadget)
		generation int64
	}{
		{"nothing", func(*workshop.Gadget) {}, 3},
		{"label", func(g *workshop.Gadget) { g.Labels = map[string]string{"x": "y"} }, 3},
		{"purpose", func(g *workshop.Gadget) { g.Spec.Purpose = "weighs" }, 4},
		{"precision", func(g *workshop.Gadget) { g.Spec.Precision = new(int32(0)) }, 4},
		{"generation", func(g *workshop.Gadget) { g.Generation = 99 }, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, ctx context.Context) {
				got := changed(tc.change)
				if err := rest.BeforeUpdate(newStrategy(newScheme()), ctx, got, stored()); err != nil {
					t.Fatalf("update: %v", err)
				}
				want := changed(tc.change)
				want.Generation = tc.generation
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("gadget as it is stored (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestValidate holds every rule at its limits, for a new gadget and for the same change of a stored one.
func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*workshop.Gadget)
		want   []string
	}{
		{"valid", func(*workshop.Gadget) {}, nil},
		{"name", func(g *workshop.Gadget) { g.Name = "G_" }, []string{"metadata.name: Invalid value"}},
		{"purpose missing", func(g *workshop.Gadget) { g.Spec.Purpose = "" }, []string{"spec.purpose: Required value"}},
		{"purpose longest", func(g *workshop.Gadget) { g.Spec.Purpose = strings.Repeat("x", 256) }, nil},
		{"purpose too long", func(g *workshop.Gadget) { g.Spec.Purpose = strings.Repeat("x", 257) },
			[]string{"spec.purpose: Too long"}},
		{"precision lowest", func(g *workshop.Gadget) { g.Spec.Precision = new(int32(0)) }, nil},
		{"precision too low", func(g *workshop.Gadget) { g.Spec.Precision = new(int32(-1)) },
			[]string{"spec.precision: Invalid value"}},
		{"precision highest", func(g *workshop.Gadget) { g.Spec.Precision = new(int32(6)) }, nil},
		{"precision too high", func(g *workshop.Gadget) { g.Spec.Precision = new(int32(7)) },
			[]string{"spec.precision: Invalid value"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, ctx context.Context) {
				s := newStrategy(newScheme())
				if diff := cmp.Diff(tc.want, problems(s.Validate(ctx, changed(tc.change)))); diff != "" {
					t.Errorf("errors on create (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tc.want, problems(s.ValidateUpdate(ctx, changed(tc.change),
					stored()))); diff != "" {
					t.Errorf("errors on update (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestOldFaults: a field that was stored before its rule existed does not keep others from being changed.
func TestOldFaults(t *testing.T) {
	eachVersion(t, func(t *testing.T, ctx context.Context) {
		old := changed(func(g *workshop.Gadget) { g.Spec.Precision = new(int32(9)) })
		updated := old.DeepCopy()
		updated.Spec.Purpose = "weighs"
		if got := problems(newStrategy(newScheme()).ValidateUpdate(ctx, updated, old)); got != nil {
			t.Errorf("change of another field: got %v, want no error", got)
		}
	})
}

// TestScope pins what a client can rely on without reading the rules.
func TestScope(t *testing.T) {
	s := newStrategy(newScheme())
	if s.NamespaceScoped() {
		t.Error("gadgets: got namespaced, want cluster-scoped")
	}
	if s.AllowCreateOnUpdate(t.Context()) {
		t.Error("PUT of a gadget that does not exist: got create, want not found")
	}
	if !s.AllowUnconditionalUpdate(t.Context()) {
		t.Error("PUT without a resourceVersion: got refused, want accepted")
	}
}

func TestColumns(t *testing.T) {
	table, err := columns.ConvertToTable(t.Context(), stored(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{"g", "measures", "<unknown>"}, table.Rows[0].Cells); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	for i, want := range []string{"Name", "Purpose", "Age"} {
		if got := table.ColumnDefinitions[i]; got.Name != want || got.Priority != 0 {
			t.Errorf("column %d: got %s with priority %d, want %s in every output", i, got.Name, got.Priority, want)
		}
	}
}
