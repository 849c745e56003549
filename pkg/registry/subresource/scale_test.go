// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// scaling uses the precision of a gadget as its replicas. In v2 the field has another path.
var scaling = Scaling{
	Scale: func(obj runtime.Object) *autoscalingv1.Scale {
		return &autoscalingv1.Scale{
			Spec:   autoscalingv1.ScaleSpec{Replicas: *obj.(*v1.Gadget).Spec.Precision},
			Status: autoscalingv1.ScaleStatus{Replicas: 1, Selector: "a=b"},
		}
	},
	SetReplicas: func(obj runtime.Object, replicas int32) { obj.(*v1.Gadget).Spec.Precision = &replicas },
	ReplicasPaths: managedfields.ResourcePathMappings{
		group + "/v1": fieldpath.MakePathOrDie("spec", "precision"),
		group + "/v2": fieldpath.MakePathOrDie("spec", "places", "wanted"),
	},
}

// newScale returns the subresource and the store of the main resource.
func newScale(t *testing.T, r rules) (*scaleREST, *genericregistry.Store) {
	t.Helper()
	store, _ := newStore(t, r)
	return NewScale(store, scaling).(*scaleREST), store
}

// scaleOf returns the scale of a gadget as a client receives it.
func scaleOf(g *v1.Gadget) *autoscalingv1.Scale {
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: g.Name, UID: g.UID, ResourceVersion: g.ResourceVersion,
			CreationTimestamp: g.CreationTimestamp},
		Spec:   autoscalingv1.ScaleSpec{Replicas: *g.Spec.Precision},
		Status: autoscalingv1.ScaleStatus{Replicas: 1, Selector: "a=b"},
	}
}

// TestScaleKind: the kind of the subresource is autoscaling/v1 Scale, which clients such as the
// HorizontalPodAutoscaler support without knowing the group.
func TestScaleKind(t *testing.T) {
	r := &scaleREST{}
	for _, version := range []string{"v1", "v2"} {
		got := r.GroupVersionKind(schema.GroupVersion{Group: group, Version: version})
		if want := (schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}); got != want {
			t.Errorf("kind of scale in %s: got %s, want %s", version, got, want)
		}
	}
	if _, ok := r.New().(*autoscalingv1.Scale); !ok {
		t.Errorf("new object: got %T, want *autoscalingv1.Scale", r.New())
	}
}

// TestScaleGet: the scale has the identity of its object, but not the object's labels or
// managedFields.
func TestScaleGet(t *testing.T) {
	r, store := newScale(t, rules{})
	gadget := create(t, store, "g", applier("kubectl", "v1", inV1))
	got, err := r.Get(in(t, "v1"), "g", &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(runtime.Object(scaleOf(gadget)), got); diff != "" {
		t.Errorf("scale (-want +got):\n%s", diff)
	}
	table, err := r.ConvertToTable(in(t, "v1"), got, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) != 1 || table.Rows[0].Cells[0] != "g" {
		t.Errorf("table of the scale: got rows %v, want one that begins with g", table.Rows)
	}
	if _, err := r.Get(in(t, "v1"), "nobody", &metav1.GetOptions{}); !noNobody(err) {
		t.Errorf("scale of a gadget that is not there: got %v, want that nobody is not found", err)
	}
}

// noNobody reports whether the error says that the gadget nobody was not found.
func noNobody(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details.Name == "nobody"
}

// TestScaleUpdate: a scale update changes only the replicas of the object, and a stale
// resourceVersion or another UID is a conflict.
func TestScaleUpdate(t *testing.T) {
	r, store := newScale(t, rules{})
	for _, tc := range []struct {
		name string
		// put returns a complete scale, patch changes the stored scale.
		put    func(*v1.Gadget) *autoscalingv1.Scale
		patch  func(*autoscalingv1.Scale)
		reason metav1.StatusReason
	}{
		{"put", func(g *v1.Gadget) *autoscalingv1.Scale {
			scale := scaleOf(g)
			scale.Labels = map[string]string{"x": "y"}
			scale.Spec.Replicas = 5
			return scale
		}, nil, ""},
		{"put without resourceVersion", func(*v1.Gadget) *autoscalingv1.Scale {
			return &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 5}}
		}, nil, ""},
		{"put with a stale resourceVersion", func(*v1.Gadget) *autoscalingv1.Scale {
			return &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"},
				Spec: autoscalingv1.ScaleSpec{Replicas: 5}}
		}, nil, metav1.StatusReasonConflict},
		{"put with the UID of another", func(*v1.Gadget) *autoscalingv1.Scale {
			return &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{UID: "other"},
				Spec: autoscalingv1.ScaleSpec{Replicas: 5}}
		}, nil, metav1.StatusReasonConflict},
		{"patch", nil, func(s *autoscalingv1.Scale) { s.Spec.Replicas = 5 }, ""},
		{"patch with a stale resourceVersion", nil, func(s *autoscalingv1.Scale) {
			s.ResourceVersion,
				s.Spec.Replicas = "1", 5
		}, metav1.StatusReasonConflict},
		{"patch with the UID of another", nil, func(s *autoscalingv1.Scale) { s.UID, s.Spec.Replicas = "other", 5 },
			metav1.StatusReasonConflict},
		{"patch without UID", nil, func(s *autoscalingv1.Scale) { s.UID, s.Spec.Replicas = "", 5 }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := create(t, store, tc.name)
			info := change(tc.patch)
			if tc.put != nil {
				info = rest.DefaultUpdatedObjectInfo(tc.put(before))
			}
			// Server-side apply sets this flag, which the scale must ignore.
			got, created, err := r.Update(in(t, "v1"), tc.name, info, nil, nil, true, &metav1.UpdateOptions{})
			if reason := apierrors.ReasonForError(err); reason != tc.reason && (err != nil || tc.reason != "") {
				t.Fatalf("got error %v (%s), want %q", err, reason, tc.reason)
			}
			want := before.DeepCopy()
			if tc.reason == "" {
				want.Spec.Precision = new(int32(5))
				want.ResourceVersion = get(t, store, tc.name).ResourceVersion
				if diff := cmp.Diff(runtime.Object(scaleOf(want)), got); diff != "" || created {
					t.Errorf("response, created %t (-want +got):\n%s", created, diff)
				}
				if want.ResourceVersion == before.ResourceVersion {
					t.Errorf("resourceVersion: got %s as before, want another", want.ResourceVersion)
				}
			}
			if diff := cmp.Diff(want, get(t, store, tc.name)); diff != "" {
				t.Errorf("stored object (-want +got):\n%s", diff)
			}
		})
	}
}

// TestScaleNeverCreates: an update of the scale of a missing object returns 404, even if PUT
// creates objects of the kind.
func TestScaleNeverCreates(t *testing.T) {
	for name, r := range map[string]rules{"most kinds": {}, "a kind that PUT creates": {createOnUpdate: true}} {
		t.Run(name, func(t *testing.T) {
			r, _ := newScale(t, r)
			info := rest.DefaultUpdatedObjectInfo(&autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}})
			_, created, err := r.Update(in(t, "v1"), "nobody", info, rest.ValidateAllObjectFunc,
				rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{})
			if !noNobody(err) || created {
				t.Errorf("got created %t and error %v, want that nobody is not found", created, err)
			}
			if _, err := r.Get(in(t, "v1"), "nobody", &metav1.GetOptions{}); !noNobody(err) {
				t.Errorf("after that: got %v, want that nobody is not found", err)
			}
		})
	}
}

// TestScaleAdmission: admission receives the scale before and after the change and can reject it.
func TestScaleAdmission(t *testing.T) {
	r, store := newScale(t, rules{})
	before := create(t, store, "g")
	refused := errors.New("not today")
	validate := func(_ context.Context, obj, old runtime.Object) error {
		want := scaleOf(before)
		if diff := cmp.Diff(runtime.Object(want), old); diff != "" {
			t.Errorf("old object (-want +got):\n%s", diff)
		}
		want.Spec.Replicas = 5
		if diff := cmp.Diff(runtime.Object(want), obj); diff != "" {
			t.Errorf("new object (-want +got):\n%s", diff)
		}
		return refused
	}
	info := change(func(s *autoscalingv1.Scale) { s.Spec.Replicas = 5 })
	if _, _, err := r.Update(in(t, "v1"), "g", info, rest.ValidateAllObjectFunc, validate, false,
		&metav1.UpdateOptions{}); !errors.Is(err, refused) {
		t.Errorf("got error %v, want %v", err, refused)
	}
	if diff := cmp.Diff(before, get(t, store, "g")); diff != "" {
		t.Errorf("stored object after it was refused (-want +got):\n%s", diff)
	}
}

// TestScaleRefuses: invalid updates and requests of another kind or without a version are
// rejected.
func TestScaleRefuses(t *testing.T) {
	r, store := newScale(t, rules{invalid: field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), 5,
		"too many")}})
	before := create(t, store, "g")
	five := change(func(s *autoscalingv1.Scale) { s.Spec.Replicas = 5 })
	for _, tc := range []struct {
		name string
		ctx  context.Context
		info rest.UpdatedObjectInfo
		want metav1.StatusReason
	}{
		{"rule of the kind", in(t, "v1"), five, metav1.StatusReasonInvalid},
		{"another kind", in(t, "v1"), rest.DefaultUpdatedObjectInfo(&v1.Gadget{}), metav1.StatusReasonBadRequest},
		{"no version", genericapirequest.WithNamespace(t.Context(), metav1.NamespaceNone), five,
			metav1.StatusReasonInternalError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := r.Update(tc.ctx, "g", tc.info, nil, nil, false, &metav1.UpdateOptions{})
			if got := apierrors.ReasonForError(err); got != tc.want {
				t.Errorf("got error %v (%s), want %s", err, got, tc.want)
			}
			if diff := cmp.Diff(before, get(t, store, "g")); diff != "" {
				t.Errorf("stored object after it was refused (-want +got):\n%s", diff)
			}
		})
	}
}

// versionOf returns a validation error that contains the version of the request.
type versionOf struct{ rules }

func (versionOf) ValidateUpdate(ctx context.Context, _, _ runtime.Object) field.ErrorList {
	info, _ := genericapirequest.RequestInfoFrom(ctx)
	return field.ErrorList{field.Forbidden(field.NewPath("in", info.APIVersion), "")}
}

// TestScaleRules: an error uses the field names of Scale, independent of the version of the
// request.
func TestScaleRules(t *testing.T) {
	replicas, other := fieldpath.MakePathOrDie("spec", "replicas"), fieldpath.MakePathOrDie("spec", "scale", "wanted")
	for name, tc := range map[string]struct {
		paths managedfields.ResourcePathMappings
		want  string
	}{
		"one version has the field of Scale": {managedfields.ResourcePathMappings{group + "/v1": other, group +
			"/v1beta1": replicas}, "v1beta1"},
		"two have": {managedfields.ResourcePathMappings{group + "/v1alpha1": replicas, group +
			"/v1": replicas, group + "/v1beta1": replicas}, "v1"},
		"none has": {managedfields.ResourcePathMappings{group + "/v1": other, group +
			"/v1alpha1": other}, "v1alpha1"},
	} {
		t.Run(name, func(t *testing.T) {
			store, r := newStore(t, rules{})
			create(t, store, "g")
			store.UpdateStrategy = versionOf{r}
			paths := scaling
			paths.ReplicasPaths = tc.paths
			scale := NewScale(store, paths).(*scaleREST)
			_, _, err := scale.Update(in(t, "v1alpha1"), "g",
				change(func(s *autoscalingv1.Scale) { s.Spec.Replicas = 5 }), nil, nil, false, &metav1.UpdateOptions{})
			if err == nil || !strings.Contains(err.Error(), "in."+tc.want+":") {
				t.Errorf("got %v, want an error of the rules of %s", err, tc.want)
			}
		})
	}
}
