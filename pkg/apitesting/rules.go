// SPDX-License-Identifier: Apache-2.0

package apitesting

import (
	"context"
	"iter"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/pkg/registry"
)

// KindRules validates objects of a kind as requests in one version do.
type KindRules struct {
	ctx    context.Context //nolint:containedctx // that of each request
	scheme *runtime.Scheme
	gv     schema.GroupVersion // of each request
	create rest.RESTCreateStrategy
	update rest.RESTUpdateStrategy
	status rest.RESTUpdateStrategy
	// hubPath returns the name of a field in the hub.
	hubPath func(path string) string
}

// received returns a copy of an object as the server decodes it from a request, with the defaults
// of the request's version.
func (r KindRules) received(obj runtime.Object) (runtime.Object, error) {
	sent, err := r.scheme.ConvertToVersion(obj, r.gv)
	if err != nil {
		return nil, err
	}
	r.scheme.Default(sent)
	return r.scheme.ConvertToVersion(sent, schema.GroupVersion{Group: r.gv.Group, Version: runtime.APIVersionInternal})
}

// stored returns a copy of an object as the server decodes it from the storage, with defaults.
func (r KindRules) stored(obj runtime.Object) runtime.Object {
	out := obj.DeepCopyObject()
	r.scheme.Default(out)
	return out
}

// validate returns the errors of a validation of a received object.
func (r KindRules) validate(obj runtime.Object, validation func(runtime.Object) field.ErrorList) field.ErrorList {
	received, err := r.received(obj)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return r.inHub(validation(received))
}

// inHub names the fields of errors as the hub does.
func (r KindRules) inHub(errs field.ErrorList) field.ErrorList {
	if r.hubPath != nil {
		for _, err := range errs {
			err.Field = r.hubPath(err.Field)
		}
	}
	return errs
}

// Rules returns the validation of a kind by version, in the order of preference. addToScheme
// registers the versions of the group and their generated validation, like AddToScheme and
// Validation of an apiserver.Group. The generated validation of the request's version applies, so
// a version without it would bypass the validation. Errors name fields as the hub does, if Paths of
// the registry.Kind has the names of the version.
func Rules(t *testing.T, newStorage registry.NewStorage,
	addToScheme ...func(*runtime.Scheme) error) iter.Seq2[string, KindRules] {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range addToScheme {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	storage, err := newStorage(scheme, registry.Unconnected{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(string, KindRules) bool) {
		for path, main := range storage {
			store, ok := main.(genericregistry.GenericStore)
			if !ok || strings.Contains(path, "/") {
				continue
			}
			rules := KindRules{scheme: scheme, create: store.GetCreateStrategy(), update: store.GetUpdateStrategy()}
			if status, ok := storage[path+"/status"].(interface {
				GetUpdateStrategy() rest.RESTUpdateStrategy
			}); ok {
				rules.status = status.GetUpdateStrategy()
			}
			gvks, _, err := scheme.ObjectKinds(main.New())
			if err != nil {
				t.Fatal(err)
			}
			namespace := metav1.NamespaceNone
			if rules.create.NamespaceScoped() {
				namespace = metav1.NamespaceDefault
			}
			for _, gv := range scheme.PrioritizedVersionsForGroup(gvks[0].Group) {
				if !scheme.Recognizes(gv.WithKind(gvks[0].Kind)) {
					continue
				}
				rules.gv = gv
				rules.ctx = genericapirequest.WithRequestInfo(genericapirequest.WithNamespace(t.Context(), namespace),
					&genericapirequest.RequestInfo{IsResourceRequest: true, APIGroup: gv.Group, APIVersion: gv.Version,
						Resource: path})
				if named, ok := rules.create.(interface {
					HubPath(version, path string) string
				}); ok {
					rules.hubPath = func(path string) string { return named.HubPath(gv.Version, path) }
				}
				if !yield(gv.Version, rules) {
					return
				}
			}
		}
	}
}

// Create returns the validation errors of a new object, which must have the Go type of the hub.
// Create, Update and UpdateStatus set defaults in copies of the objects, as the server does. An
// object that cannot be converted to the version has an internal error.
func (r KindRules) Create(obj runtime.Object) field.ErrorList {
	return r.validate(obj, func(obj runtime.Object) field.ErrorList { return r.create.Validate(r.ctx, obj) })
}

// Update returns the validation errors of a change.
func (r KindRules) Update(obj, old runtime.Object) field.ErrorList {
	return r.validate(obj, func(obj runtime.Object) field.ErrorList {
		return r.update.ValidateUpdate(r.ctx, obj, r.stored(old))
	})
}

// UpdateStatus returns the validation errors of a change through the subresource status, which
// the kind must have.
func (r KindRules) UpdateStatus(obj, old runtime.Object) field.ErrorList {
	return r.validate(obj, func(obj runtime.Object) field.ErrorList {
		return r.status.ValidateUpdate(r.ctx, obj, r.stored(old))
	})
}
