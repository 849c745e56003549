// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Action returns a subresource that changes an object on request, such as cancel. A client sends
// a POST with a B. The client needs permission to create the subresource. B and R must be
// registered in each version of the group that serves the kind. Each served version of B and R
// converts to the hub, like the kind.
//
// do changes obj, which is a copy of the stored object, and returns the response. If R is T, the
// response is the stored object. do may also change the status. The server stores the change if
// the object passes the validation of the kind and of its status. The server calls do again if
// the object changed concurrently, and also calls it for dry runs, which store nothing. Therefore
// do must not change anything but obj. An error of k8s.io/apimachinery/pkg/api/errors is sent to
// the client. Any other error is sent as 500.
//
// If metadata.uid or metadata.resourceVersion is set in the body, it must match the object;
// otherwise the response is 409. If metadata.name is set, it must match the name in the URL.
// Admission plugins and webhooks receive the body with the verb create. Kubernetes rejects that
// verb in a namespace that is being deleted. Admission for updates of the kind and
// PrepareForUpdate are not called. As for the subresource binding of pods, metadata.managedFields
// of the object does not change.
func Action[T, B Object, R runtime.Object](do func(ctx context.Context, obj T, body B) (R, error)) Subresource[T] {
	return action[T, B, R](do)
}

type action[T, B Object, R runtime.Object] func(ctx context.Context, obj T, body B) (R, error)

func (action[T, B, R]) updates() {}

// reservedActions contains the verbs of requests, which would be ambiguous in a role or an audit
// event, and the subresource names that have a meaning in Kubernetes.
var reservedActions = sets.New("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
	"connect", "apply", "bind", "escalate", "impersonate", "proxy", "status", "scale", "log", "exec", "attach",
	"portforward", "binding", "eviction", "finalize", "token", "approval", "ephemeralcontainers")

func (do action[T, B, R]) check(d *description[T], name string) []error {
	var problems []error
	if do == nil {
		problems = append(problems, errors.New("there is no function"))
	}
	for _, wrong := range validation.IsDNS1123Label(name) {
		problems = append(problems, errors.New(wrong))
	}
	if reflect.TypeFor[B]().Kind() != reflect.Pointer || reflect.TypeFor[R]().Kind() != reflect.Pointer {
		return append(problems, fmt.Errorf("the body is a %s and the response a %s, expected pointers to structs",
			reflect.TypeFor[B](), reflect.TypeFor[R]()))
	}
	if reservedActions.Has(name) {
		problems = append(problems, errors.New("an action cannot have this name: it is a verb, or another subresource "+
			"of Kubernetes"))
	}
	for _, example := range []runtime.Object{newObject[B](), newObject[R]()} {
		problems = append(problems, d.checkServed(example)...)
	}
	return problems
}

func (do action[T, B, R]) newStorage(d *description[T], store *genericregistry.Store, a authorizer.Authorizer,
	_ string) rest.Storage {
	rules := actionRules[T]{newRules(d)}
	actionStore := *store
	actionStore.UpdateStrategy, actionStore.BeginUpdate = rules, d.authorizeUpdate(a, rules)
	return &actionREST[T, B, R]{d: d, store: &actionStore, do: do}
}

// checkServed registers the type of a body, a response or options as the internal version of its
// kind. It returns an error for each version that serves the kind but does not register the type.
func (d *description[T]) checkServed(example runtime.Object) []error {
	if reflect.TypeOf(example) == reflect.TypeFor[*metav1.Status]() {
		return nil
	}
	gvks, _, err := d.scheme.ObjectKinds(example)
	if err != nil {
		return []error{err}
	}
	gvks = slices.DeleteFunc(slices.Clone(gvks), func(gvk schema.GroupVersionKind) bool {
		return gvk.Group != d.gvk.Group
	})
	if len(gvks) == 0 {
		return []error{fmt.Errorf("the type %T is not registered in the group %s", example, d.gvk.Group)}
	}
	var problems []error
	for _, gv := range d.versions {
		if !d.scheme.Recognizes(gv.WithKind(gvks[0].Kind)) {
			problems = append(problems, fmt.Errorf("version %s serves the kind, and does not register %s", gv.Version,
				gvks[0].Kind))
		}
	}
	if err := addInternal(d.scheme, example); err != nil {
		problems = append(problems, err)
	}
	return problems
}

// actionREST implements the storage of an action.
type actionREST[T, B Object, R runtime.Object] struct {
	d       *description[T]
	store   *genericregistry.Store
	do      action[T, B, R]
	version schema.GroupVersion // the served version
}

// inVersion implements inVersions. OpenAPI needs the version to show the type of the response.
func (r actionREST[T, B, R]) inVersion(gv schema.GroupVersion) rest.Storage {
	r.version = gv
	return &r
}

// New returns a new body.
func (r *actionREST[T, B, R]) New() runtime.Object { return newObject[B]() }

// Destroy does nothing: the store belongs to the main resource.
func (r *actionREST[T, B, R]) Destroy() {}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate implements
// rest.SubresourceObjectMetaPreserver.
func (r *actionREST[T, B, R]) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool {
	return true
}

// ProducesMIMETypes implements rest.StorageMetadata.
func (r *actionREST[T, B, R]) ProducesMIMETypes(string) []string { return nil }

// ProducesObject implements rest.StorageMetadata.
func (r *actionREST[T, B, R]) ProducesObject(string) any {
	example := newObject[R]()
	if gvks, _, err := r.d.scheme.ObjectKinds(example); err == nil {
		if served, err := r.d.scheme.New(r.version.WithKind(gvks[0].Kind)); err == nil {
			return reflect.ValueOf(served).Elem().Interface()
		}
	}
	return reflect.ValueOf(example).Elem().Interface()
}

// Create implements rest.NamedCreater.
func (r *actionREST[T, B, R]) Create(ctx context.Context, name string, obj runtime.Object,
	validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	body := obj.(B) //nolint:forcetypeassert // the library decodes into what New returns
	if body.GetName() != "" && body.GetName() != name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("metadata.name is %q, expected %q as in the URL, or none",
			body.GetName(), name))
	}
	rules := newRules(r.d)
	if errs := rules.Enforce(asMain(ctx), body, nil, nil); len(errs) > 0 {
		gvks, _, err := r.d.scheme.ObjectKinds(body)
		if err != nil {
			return nil, err
		}
		return nil, apierrors.NewInvalid(gvks[0].GroupKind(), name, errs)
	}
	if validate != nil {
		if err := validate(ctx, body); err != nil {
			return nil, err
		}
	}
	change := &changedBy[T, B, R]{do: r.do, body: body}
	stored, _, err := r.store.Update(ctx, name, change, nil, nil, false, &metav1.UpdateOptions{DryRun: options.DryRun,
		FieldManager: options.FieldManager})
	if err != nil {
		return nil, err
	}
	if reflect.TypeFor[R]() == reflect.TypeFor[T]() {
		return stored, nil
	}
	return change.result, nil
}

// asMain returns a copy of ctx whose request is for the main resource, because the generated
// validation is registered for the main resource.
func asMain(ctx context.Context) context.Context {
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	if !ok {
		return ctx
	}
	main := *info
	main.Subresource = ""
	return genericapirequest.WithRequestInfo(ctx, &main)
}

// changedBy implements rest.UpdatedObjectInfo.
type changedBy[T, B Object, R runtime.Object] struct {
	do     action[T, B, R]
	body   B
	result R
}

// Preconditions implements rest.UpdatedObjectInfo.
func (c *changedBy[T, B, R]) Preconditions() *metav1.Preconditions {
	var conditions metav1.Preconditions
	if uid := c.body.GetUID(); uid != "" {
		conditions.UID = &uid
	}
	if version := c.body.GetResourceVersion(); version != "" {
		conditions.ResourceVersion = &version
	}
	return &conditions
}

// UpdatedObject implements rest.UpdatedObjectInfo.
func (c *changedBy[T, B, R]) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	obj := old.DeepCopyObject().(T)     //nolint:forcetypeassert // the store is that of T
	body := c.body.DeepCopyObject().(B) //nolint:forcetypeassert // it is a copy
	result, err := c.do(ctx, obj, body)
	if err == nil && reflect.ValueOf(result).IsNil() {
		err = errors.New("the action returns no response")
	}
	c.result = result
	return obj, err
}

// actionRules is the update strategy of an action. Unlike the main resource, it lets the status
// change.
type actionRules[T Object] struct {
	rules[T]
}

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (r actionRules[T]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	object, oldObject := obj.(T), old.(T) //nolint:forcetypeassert // a panic is counted
	if r.counted(object, oldObject) {
		object.SetGeneration(oldObject.GetGeneration() + 1)
	}
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (r actionRules[T]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return r.validateUpdate(asMain(ctx), obj, old, func(ctx context.Context, obj, old T) field.ErrorList {
		var errs field.ErrorList
		if r.Kind.Validate != nil {
			errs = append(errs, r.Kind.Validate(ctx, obj, old)...)
		}
		if status, ok := r.Subresources["status"].(Status[T]); ok && status.Validate != nil {
			errs = append(errs, status.Validate(ctx, obj, old)...)
		}
		return errs
	})
}
