// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// precisionOnly uses the precision of a gadget as its status: an update changes nothing else.
type precisionOnly struct{ rules }

func (precisionOnly) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	obj.(*v1.Gadget).Spec.Purpose = old.(*v1.Gadget).Spec.Purpose
}

func (precisionOnly) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{"status/v1": fieldpath.NewSet()}
}

func newStatus(t *testing.T) (*statusREST, *genericregistry.Store) {
	t.Helper()
	store, r := newStore(t, rules{})
	return NewStatus(store, precisionOnly{r}).(*statusREST), store
}

// TestStatus: the subresource returns the object and updates it with its own strategy. The
// strategy of the main resource does not change.
func TestStatus(t *testing.T) {
	r, store := newStatus(t)
	create(t, store, "g")
	both := change(func(g *v1.Gadget) {
		g.Spec = v1.GadgetSpec{Purpose: "weighs",
			Precision: new(int32(5))}
	})
	for _, tc := range []struct {
		name   string
		update rest.Updater
		want   v1.GadgetSpec
	}{
		{"status", r, v1.GadgetSpec{Purpose: "measures", Precision: new(int32(5))}},
		{"main resource", store, v1.GadgetSpec{Purpose: "weighs", Precision: new(int32(5))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, created, err := tc.update.Update(in(t, "v1"), "g", both, rest.ValidateAllObjectFunc,
				rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
			if err != nil || created {
				t.Fatalf("got created %t and error %v, want an update", created, err)
			}
			read, err := r.Get(in(t, "v1"), "g", &metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for name, obj := range map[string]runtime.Object{"response": got, "read": read} {
				if diff := cmp.Diff(tc.want, obj.(*v1.Gadget).Spec); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

// TestStatusNeverCreates: a status update never creates an object, even if server-side apply
// requests it.
func TestStatusNeverCreates(t *testing.T) {
	r, store := newStatus(t)
	gadget := &v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: "nobody"},
		Spec: v1.GadgetSpec{Purpose: "measures"}}
	update := func(r rest.Updater) (bool, error) {
		_, created, err := r.Update(in(t, "v1"), "nobody", rest.DefaultUpdatedObjectInfo(gadget),
			rest.ValidateAllObjectFunc,
			rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{})
		return created, err
	}
	if created, err := update(r); !noNobody(err) || created {
		t.Errorf("status: got created %t and error %v, want that nobody is not found", created, err)
	}
	// The main resource creates an object for the same request.
	if created, err := update(store); err != nil || !created {
		t.Errorf("main resource: got created %t and error %v, want it created", created, err)
	}
}

// TestStatusResetFields: the status and the main resource have different reset fields.
func TestStatusResetFields(t *testing.T) {
	r, store := newStatus(t)
	for want, got := range map[fieldpath.APIVersion]map[fieldpath.APIVersion]*fieldpath.Set{"status/v1": r.GetResetFields(), "main/v1": store.GetResetFields()} {
		if _, ok := got[want]; !ok || len(got) != 1 {
			t.Errorf("reset fields: got %v, want those of %s", got, want)
		}
	}
}

// TestStatusDestroy: a subresource does not destroy the store, which belongs to the main
// resource.
func TestStatusDestroy(t *testing.T) {
	status, store := newStatus(t)
	destroyed := 0
	destroy := store.DestroyFunc
	store.DestroyFunc = func() { destroyed++; destroy() }
	for _, r := range []rest.Storage{NewStatus(store, precisionOnly{}), NewScale(store, scaling)} {
		r.Destroy()
		if destroyed != 0 {
			t.Errorf("%T: got the store destroyed, want it left to the main resource", r)
		}
	}
	create(t, store, "g")
	if _, err := status.Get(in(t, "v1"), "g", &metav1.GetOptions{}); err != nil {
		t.Errorf("get after that: %v", err)
	}
	if table, err := status.ConvertToTable(in(t, "v1"), get(t, store, "g"), nil); err != nil || len(table.Rows) != 1 ||
		table.Rows[0].Cells[0] != "g" {
		t.Errorf("table: got %v and error %v, want the row of g", table, err)
	}
	if _, ok := status.New().(*v1.Gadget); !ok {
		t.Errorf("new object: got %T, want that of the store", status.New())
	}
	if _, err := status.Get(in(t, "v1"), "nobody", &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("status of a gadget that is not there: got %v, want not found", err)
	}
}
