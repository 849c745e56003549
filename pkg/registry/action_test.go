// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"io"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/apis/workshop/v1alpha1"
)

// resize is an action whose body is a Gadget. It sets the replicas and a status field.
func resize(_ context.Context, w *v1.Widget, body *v1.Gadget) (*v1.Widget, error) {
	if body.Spec.Purpose == "wrong" {
		return nil, apierrors.NewConflict(v1.Resource("widgets"), w.Name, errors.New("it cannot be"))
	}
	w.Spec.Replicas, w.Status.ReadyReplicas = body.Spec.Precision, 7
	return w, nil
}

// TestActionChange: an action changes spec and status, the generation counts changes of the spec,
// and the stored object is not modified.
func TestActionChange(t *testing.T) {
	body := &v1.Gadget{ObjectMeta: metav1.ObjectMeta{UID: "7", ResourceVersion: "5"}, Spec: v1.GadgetSpec{Precision: new(int32(4))}}
	change := &changedBy[*v1.Widget, *v1.Gadget, *v1.Widget]{do: resize, body: body}
	if got := change.Preconditions(); *got.UID != "7" || *got.ResourceVersion != "5" {
		t.Errorf("got the preconditions %v, want those of the body", got)
	}
	old := storedWidget(nil)
	got, err := change.UpdatedObject(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(storedWidget(nil), old); diff != "" {
		t.Errorf("the stored object is changed (-want +got):\n%s", diff)
	}
	rules := actionRules[*v1.Widget]{newRules(mustDescribe(t, widgets))}
	if err := rest.BeforeUpdate(rules, inVersion(t, "v1"), got, old); err != nil {
		t.Fatal(err)
	}
	want := storedWidget(func(w *v1.Widget) {
		w.Spec.Replicas, w.Status.ReadyReplicas, w.Generation = new(int32(4)), 7, 4
	})
	if diff := cmp.Diff(runtime.Object(want), got); diff != "" {
		t.Errorf("changed object (-want +got):\n%s", diff)
	}
}

// TestActionValidate: the validation of the kind, of its status and of the type applies to a
// change by an action.
func TestActionValidate(t *testing.T) {
	kind := widgets
	kind.Validate = func(_ context.Context, w, _ *v1.Widget) field.ErrorList {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "model"), *w.Spec.Replicas, "kind")}
	}
	kind.Subresources = map[string]Subresource[*v1.Widget]{"status": Status[*v1.Widget]{
		Validate: func(_ context.Context, w, _ *v1.Widget) field.ErrorList {
			return field.ErrorList{field.Invalid(field.NewPath("status", "readyReplicas"), w.Status.ReadyReplicas, "status")}
		}}}
	rules := actionRules[*v1.Widget]{newRules(mustDescribe(t, kind))}
	changed := storedWidget(func(w *v1.Widget) {
		w.Status.ReadyReplicas, w.Spec.Replicas = 7, new(int32(-1))
	})
	var got []string
	for _, err := range rules.ValidateUpdate(inVersion(t, "v1alpha1"), changed, storedWidget(nil)) {
		got = append(got, err.Field)
	}
	want := []string{"spec.design", "status.readyReplicas", "spec.scale.desired"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields of the errors (-want +got):\n%s", diff)
	}
}

// TestActionBody: an action rejects an invalid body before it changes anything.
func TestActionBody(t *testing.T) {
	kind := widgets
	kind.Subresources = map[string]Subresource[*v1.Widget]{"resize": Action(resize)}
	storage, err := kind.NewStorage(actionScheme(), Unconnected{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	action := storage["widgets/resize"].(rest.NamedCreater)
	for name, tc := range map[string]struct {
		body runtime.Object
		want string
	}{
		"another name": {&v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: "v"}}, `metadata.name is "v", expected "w"`},
		"invalid":      {&v1.Gadget{}, `spec.purpose: Required value`},
		"rejected":     {&v1.Gadget{Spec: v1.GadgetSpec{Purpose: "p", Precision: new(int32(1))}}, `by admission`},
	} {
		_, err := action.Create(inVersion(t, "v1"), "w", tc.body,
			func(context.Context, runtime.Object) error { return errors.New("rejected by admission") },
			&metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got the error %v, want one with %q", name, err, tc.want)
		}
	}
}

// TestActionOpenAPI: the response has the type of the version in which the action is served.
func TestActionOpenAPI(t *testing.T) {
	kind := widgets
	kind.Subresources = map[string]Subresource[*v1.Widget]{"resize": Action(resize)}
	scheme := actionScheme()
	group, err := NewAPIGroupInfo(v1.SchemeGroupVersion.Group, []NewStorage{kind.NewStorage}, scheme,
		serializer.NewCodecFactory(scheme), Unconnected{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]any{"v1": v1.Widget{}, "v1alpha1": v1alpha1.Widget{}} {
		got := group.VersionedResourcesStorageMap[version]["widgets/resize"].(rest.StorageMetadata).ProducesObject("POST")
		if reflect.TypeOf(got) != reflect.TypeOf(want) {
			t.Errorf("%s: the response is a %T, want a %T", version, got, want)
		}
	}
}

// TestActionContradictions: NewStorage reports each action or log that cannot be served.
func TestActionContradictions(t *testing.T) {
	kind := widgets
	kind.Subresources = map[string]Subresource[*v1.Widget]{
		"watch": Action(resize), "scale": Action(resize),
		"none":    Action[*v1.Widget, *v1.Gadget, *v1.Widget](nil),
		"foreign": Action(func(context.Context, *v1.Widget, *corev1.Pod) (*metav1.Status, error) { return nil, nil }),
		"logs":    Log(writeNothing),
		"log":     Log(func(context.Context, *v1.Widget, *v1.Gadget, io.Writer) error { return nil }),
	}
	_, err := kind.NewStorage(sampleScheme(), Unconnected{}, nil)
	for _, want := range []string{
		"subresource watch: an action cannot have this name", "subresource scale: an action cannot have this name",
		"subresource none: there is no function", "subresource none: version v1beta1 serves the kind, and does not register Gadget",
		"subresource foreign: no kind is registered for the type v1.Pod", "subresource logs: it is a Log, whose name is log",
		"subresource logs: no kind is registered for the type registry.logOptions",
		"subresource log: version v1alpha1 serves the kind, and does not register Gadget",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to contain %q", err, want)
		}
	}
	kind.Subresources = map[string]Subresource[*v1.Widget]{
		"log": Log(func(context.Context, *v1.Widget, *v1.Gadget, io.Writer) error { return nil }),
	}
	kind.Subresources["log"] = Log(func(context.Context, *v1.Widget, runtime.Object, io.Writer) error { return nil })
	_, err = kind.NewStorage(actionScheme(), Unconnected{}, nil)
	if want := "subresource log: the options are a runtime.Object, expected a pointer"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want it to contain %q", err, want)
	}
	kind.Subresources["log"] = Log(func(context.Context, *v1.Widget, *v1.Gadget, io.Writer) error { return nil })
	_, err = kind.NewStorage(actionScheme(), Unconnected{}, nil)
	if want := "subresource log: field ObjectMeta: embedded structs are not read from a query"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want it to contain %q", err, want)
	}
}

// actionScheme returns a scheme that has the body of resize and the options of a log in each
// version.
func actionScheme() *runtime.Scheme {
	scheme := sampleScheme()
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		gv := schema.GroupVersion{Group: v1.SchemeGroupVersion.Group, Version: version}
		scheme.AddKnownTypes(gv, &v1.Gadget{})
		scheme.AddKnownTypeWithName(gv.WithKind("LogOptions"), &logOptions{})
	}
	return scheme
}

func writeNothing(context.Context, *v1.Widget, *logOptions, io.Writer) error { return nil }

// logOptions has a field of each type that a query can set.
type logOptions struct {
	metav1.TypeMeta
	Follow    bool         `json:"follow,omitempty"`
	TailLines *int64       `json:"tailLines,omitempty"`
	Container string       `json:"container,omitempty"`
	Streams   []string     `json:"streams,omitempty"`
	Since     *metav1.Time `json:"since,omitempty"`
}

func (o *logOptions) DeepCopyObject() runtime.Object {
	out := *o
	return &out
}

// TestQueryOptions: query options are decoded in each version that registers their type, and an
// empty query gets defaults.
func TestQueryOptions(t *testing.T) {
	scheme, kind := actionScheme(), widgets
	scheme.AddTypeDefaultingFunc(&logOptions{}, func(obj any) {
		if o := obj.(*logOptions); o.Container == "" { //nolint:forcetypeassert // it is registered for it
			o.Container = "main"
		}
	})
	kind.Subresources = map[string]Subresource[*v1.Widget]{"log": Log(writeNothing)}
	group, err := NewAPIGroupInfo(v1.SchemeGroupVersion.Group, []NewStorage{kind.NewStorage}, scheme,
		serializer.NewCodecFactory(scheme), Unconnected{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	codec := runtime.NewParameterCodec(scheme)
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		for query, want := range map[string]logOptions{
			"":                     {Container: "main"},
			"follow":               {Container: "main", Follow: true},
			"follow&container=log": {Container: "log", Follow: true},
		} {
			values, err := url.ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			//nolint:forcetypeassert // a log is one
			got, _, _ := group.VersionedResourcesStorageMap[version]["widgets/log"].(rest.Connecter).NewConnectOptions()
			err = codec.DecodeParameters(values, schema.GroupVersion{Group: v1.SchemeGroupVersion.Group, Version: version},
				got)
			if diff := cmp.Diff(&want, got); diff != "" || err != nil {
				t.Errorf("%s, %s: %v; options (-want +got):\n%s", version, query, err, diff)
			}
		}
	}
}
