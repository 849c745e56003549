// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/extension-apiserver/pkg/registry/subresource"
)

// Subresource is served below each object of a Kind.
type Subresource[T Object] interface {
	// check returns an error for each contradiction in the subresource.
	check(d *description[T], name string) []error
	newStorage(d *description[T], store *genericregistry.Store, a authorizer.Authorizer, name string) rest.Storage
}

// Status is the subresource status. It updates the field Status of the type, which the main
// resource then cannot change.
type Status[T Object] struct {
	// Validate returns the errors of a changed status, like Validate of the Kind for other
	// fields. old is never nil.
	Validate func(ctx context.Context, obj, old T) field.ErrorList
}

// updates marks subresources that update the object.
func (Status[T]) updates() {}
func (Scale[T]) updates()  {}

// statusOf returns the field Status of an object.
func statusOf[T Object](obj T) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName("Status")
}

func (s Status[T]) check(_ *description[T], name string) []error {
	if name != "status" {
		return []error{errors.New("it is a Status, whose name is status")}
	}
	return nil
}

func (s Status[T]) newStorage(d *description[T], store *genericregistry.Store, a authorizer.Authorizer,
	_ string) rest.Storage {
	rules := statusRules[T]{newRules(d), s}
	statusStore := *store
	statusStore.BeginUpdate = d.authorizeUpdate(a, rules)
	return subresource.NewStatus(&statusStore, rules)
}

// Scale is the subresource scale, which kubectl scale and the HorizontalPodAutoscaler use. The
// paths are paths of the hub. Set Paths of the Kind for other versions.
type Scale[T Object] struct {
	// SpecReplicas is the path of the desired number of replicas, an int32 or a pointer to one.
	// Default: spec.replicas.
	SpecReplicas string
	// StatusReplicas is the path of the observed number of replicas. Default: status.replicas.
	StatusReplicas string
	// Selector is the path of the label selector of the scaled objects, a string. The
	// HorizontalPodAutoscaler needs it. Default: status.selector if that field exists.
	Selector string
}

// withDefaults returns the Scale with default paths for empty fields.
func (s Scale[T]) withDefaults() Scale[T] {
	if s.SpecReplicas == "" {
		s.SpecReplicas = "spec.replicas"
	}
	if s.StatusReplicas == "" {
		s.StatusReplicas = "status.replicas"
	}
	if s.Selector == "" && fieldAt(reflect.TypeFor[T]().Elem(), "status.selector") != nil {
		s.Selector = "status.selector"
	}
	return s
}

func (s Scale[T]) check(d *description[T], name string) []error {
	var problems []error
	if name != "scale" {
		problems = append(problems, errors.New("it is a Scale, whose name is scale"))
	}
	s = s.withDefaults()
	expect := func(path string, kind reflect.Kind) {
		typ := fieldAt(reflect.TypeFor[T]().Elem(), path)
		if typ != nil && typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ == nil || typ.Kind() != kind {
			problems = append(problems, fmt.Errorf("%s has no %s %s", d.gvk.Version, kind, path))
		}
	}
	expect(s.SpecReplicas, reflect.Int32)
	expect(s.StatusReplicas, reflect.Int32)
	if s.Selector != "" {
		expect(s.Selector, reflect.String)
	}
	for _, gv := range d.versions {
		if in := d.pathIn(gv.Version, s.SpecReplicas); gv != d.gvk.GroupVersion() && fieldAt(d.typeIn(gv), in) == nil {
			problems = append(problems, fmt.Errorf("%s has no %s; Paths say which name it has there", gv.Version, in))
		}
	}
	return problems
}

func (s Scale[T]) newStorage(d *description[T], store *genericregistry.Store, _ authorizer.Authorizer,
	_ string) rest.Storage {
	return subresource.NewScale(store, s.scaling(d))
}

func (s Scale[T]) scaling(d *description[T]) subresource.Scaling {
	s = s.withDefaults()
	paths := managedfields.ResourcePathMappings{}
	for _, gv := range d.versions {
		var path fieldpath.Path
		for name := range strings.SplitSeq(d.pathIn(gv.Version, s.SpecReplicas), ".") {
			path = append(path, fieldpath.PathElement{FieldName: &name})
		}
		paths[gv.String()] = path
	}
	return subresource.Scaling{
		Scale: func(obj runtime.Object) *autoscalingv1.Scale {
			scale, value := &autoscalingv1.Scale{}, reflect.ValueOf(obj)
			if v := reflect.Indirect(valueAt(value, s.SpecReplicas, false)); v.IsValid() {
				scale.Spec.Replicas = int32(v.Int()) //nolint:gosec // it is an int32
			}
			if v := reflect.Indirect(valueAt(value, s.StatusReplicas, false)); v.IsValid() {
				scale.Status.Replicas = int32(v.Int()) //nolint:gosec // it is an int32
			}
			if s.Selector != "" {
				if v := reflect.Indirect(valueAt(value, s.Selector, false)); v.IsValid() {
					scale.Status.Selector = v.String()
				}
			}
			return scale
		},
		SetReplicas: func(obj runtime.Object, replicas int32) {
			v := valueAt(reflect.ValueOf(obj), s.SpecReplicas, true)
			if v.Kind() == reflect.Pointer {
				v.Set(reflect.New(v.Type().Elem()))
				v = v.Elem()
			}
			v.SetInt(int64(replicas))
		},
		ReplicasPaths: paths,
	}
}

// Stream is a subresource that opens a streaming session for each client, like
// subresource.NewStream. The function returns the Session that runs for each of them. get reads
// objects of the kind without authorizing the caller.
type Stream[T Object] func(get rest.Getter, a authorizer.Authorizer) subresource.Session

func (s Stream[T]) check(*description[T], string) []error {
	if s == nil {
		return []error{errors.New("there is no function")}
	}
	return nil
}

func (s Stream[T]) newStorage(_ *description[T], store *genericregistry.Store, a authorizer.Authorizer,
	name string) rest.Storage {
	return subresource.NewStream(store, a, name, s(store, a))
}

// CustomSubresource creates any other subresource on the store of the main resource. If the Kind
// has Authorize, it is called before the strategy prepares an object, so it also sees changes of
// fields that the strategy resets.
type CustomSubresource[T Object] func(store *genericregistry.Store, a authorizer.Authorizer) rest.Storage

func (s CustomSubresource[T]) check(*description[T], string) []error {
	if s == nil {
		return []error{errors.New("there is no function")}
	}
	return nil
}

func (s CustomSubresource[T]) newStorage(d *description[T], store *genericregistry.Store, a authorizer.Authorizer,
	_ string) rest.Storage {
	own := *store
	own.BeginUpdate = d.authorizeUpdate(a, unprepared{})
	return s(&own, a)
}

// unprepared is a strategy that does not change objects.
type unprepared struct{}

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (unprepared) PrepareForUpdate(context.Context, runtime.Object, runtime.Object) {}

// checkSubresources returns an error for each contradiction, ordered by subresource name.
func (d *description[T]) checkSubresources() []error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(d.Subresources)) {
		s := d.Subresources[name]
		if s == nil {
			problems = append(problems, fmt.Errorf("subresource %s: it is nil", name))
			continue
		}
		hub := reflect.TypeFor[T]().Elem()
		if f, ok := hub.FieldByName("Status"); name == "status" && (!ok || fieldAt(hub, "status") != f.Type) {
			problems = append(problems, fmt.Errorf("subresource status: %s has no field Status with the name status in "+
				"JSON", d.gvk.Version))
		}
		for _, problem := range s.check(d, name) {
			problems = append(problems, fmt.Errorf("subresource %s: %w", name, problem))
		}
	}
	return problems
}
