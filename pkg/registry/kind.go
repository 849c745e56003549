// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Object is a pointer to the Go type of a kind.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind describes a kind by the Go type T of one served version, the hub. Add its method
// NewStorage to the Kinds of an API group. The other versions convert to the hub. Requests in the
// hub's version need no conversion, and there is no separate internal type. AddToScheme must
// register T and a list type whose name is the kind followed by "List".
//
// The zero value behaves like most built-in kinds:
//   - Metadata, the generated validation of the request's version and Validate must pass.
//   - metadata.generation counts changes of everything except metadata and, if the kind has the
//     subresource status, the status.
//   - An update never creates an object and needs no resourceVersion. A finalizer without a domain
//     causes a warning.
//   - kubectl get shows the name and the age.
//
// Hooks may be called concurrently. If a hook panics, its request fails with 500.
type Kind[T Object] struct {
	// Resource is the name of the resource in URLs. Default: the English plural of the kind in
	// lower case.
	Resource string
	// ClusterScoped is true for kinds without a namespace.
	ClusterScoped bool
	// ShortNames and Categories are additional names by which kubectl finds the resource.
	ShortNames, Categories []string
	// Columns are shown by kubectl get between the name and the age. Columns with a priority
	// above 0 follow the age and are shown only with -o wide.
	Columns []Column[T]
	// SelectableFields maps the path of a field in the hub, such as spec.model, to a function
	// that returns its value for field selectors. metadata.name and metadata.namespace are always
	// selectable.
	SelectableFields map[string]func(T) string
	// Paths maps field paths of the hub to the paths of the same fields in another version, by
	// version: {"v1alpha1": {"spec.model": "spec.design"}}. They apply to selectable fields, the
	// replicas of the subresource scale and the errors of Validate. A path also applies to the
	// fields below it. Fields that are not listed have the same path in all versions.
	Paths map[string]map[string]string
	// ValidateName validates metadata.name on create. Default: a DNS subdomain.
	ValidateName apivalidation.ValidateNameFunc
	// Validate returns validation errors that the tags of the type cannot express, with paths of
	// the hub. old is nil on create. On update, errors that the stored object also has are
	// ignored. Objects that were stored before a check existed can therefore still be updated.
	// Validate must not change the objects.
	Validate func(ctx context.Context, obj, old T) field.ErrorList
	// Authorize returns an error, such as that of subresource.Authorize, unless the caller may
	// create obj or change old to obj. Use it for fields that need a permission beyond the verb
	// of the request. old is nil on create, where metadata.name may be empty. Authorize is called
	// before Validate for each change that is stored, including changes through subresources. It
	// must not change the objects.
	Authorize func(ctx context.Context, a authorizer.Authorizer, obj, old T) error
	// Warn returns warnings for the client. old is nil on create.
	Warn func(ctx context.Context, obj, old T) []string
	// PrepareForCreate and PrepareForUpdate change an object before validation, after the status
	// has been reset. If Authorize is set, they are first called an additional time with a copy
	// of the object, and must have the same effect each time.
	PrepareForCreate func(ctx context.Context, obj T)
	PrepareForUpdate func(ctx context.Context, obj, old T)
	// Subresources are served below each object, by name. Use Status, Scale, Action, Log, Stream
	// or CustomSubresource.
	Subresources map[string]Subresource[T]
	// Source serves the objects of another system. Use Cached or Live. Default: objects are
	// stored in etcd.
	Source Source[T]
}

// Column is a column of kubectl get.
type Column[T Object] struct {
	// Name is the column heading. Required.
	Name string
	// Type is the OpenAPI type: string, integer, number, boolean or date. Default: string.
	Type string
	// Description describes the content of the column.
	Description string
	// Priority above 0 shows the column only with -o wide.
	Priority int32
	// Value returns the content of a cell: a string, a number, a bool, a pointer to one of them,
	// or a time, which is shown as the time since then. A nil value shows an empty cell.
	// Required.
	Value func(T) any
}

// NewStorage implements the function type NewStorage. It returns all contradictions in the
// description as one utilerrors.Aggregate.
func (k Kind[T]) NewStorage(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter,
	a authorizer.Authorizer) (map[string]rest.Storage, error) {
	d, err := k.describe(scheme)
	if err != nil {
		return nil, err
	}
	if err := d.addSelectableFields(); err != nil {
		return nil, fmt.Errorf("kind %s: %w", d.gvk.Kind, err)
	}
	var store *genericregistry.Store
	var main rest.Storage
	if k.Source != nil {
		store, main, err = k.Source.newStorage(d, optsGetter, a)
	} else {
		store, err = d.newStore(optsGetter, a)
		main = &kindREST{store, names{k.ShortNames, k.Categories}}
	}
	if err != nil {
		return nil, err
	}
	storage := map[string]rest.Storage{d.resource.Resource: main}
	for name, subresource := range k.Subresources {
		storage[d.resource.Resource+"/"+name] = subresource.newStorage(d, store, a, name)
	}
	return storage, nil
}

// newStore returns the store of the main resource.
func (d *description[T]) newStore(optsGetter generic.RESTOptionsGetter,
	a authorizer.Authorizer) (*genericregistry.Store, error) {
	rules := newRules(d)
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return newObject[T]() },
		NewListFunc:               d.newList,
		DefaultQualifiedResource:  d.resource,
		SingularQualifiedResource: schema.GroupResource{Group: d.gvk.Group, Resource: singular(d.gvk)},
		CreateStrategy:            rules,
		UpdateStrategy:            rules,
		DeleteStrategy:            rules,
		ResetFieldsStrategy:       rules,
		TableConvertor:            d.table(),
		BeginCreate:               d.authorizeCreate(a, rules),
		BeginUpdate:               d.authorizeUpdate(a, rules),
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: optsGetter,
		AttrFunc: d.attributes}); err != nil {
		return nil, fmt.Errorf("complete store of %s: %w", d.resource, err)
	}
	return store, nil
}

func singular(gvk schema.GroupVersionKind) string { return strings.ToLower(gvk.Kind) }

// kindREST adds the names by which kubectl finds the resource to the store.
type kindREST struct {
	*genericregistry.Store
	names
}

// names are the additional names by which kubectl finds a resource.
type names struct{ shortNames, categories []string }

func (n names) ShortNames() []string { return n.shortNames }
func (n names) Categories() []string { return n.categories }

// newObject returns a new object of a pointer type.
func newObject[P runtime.Object]() P {
	return reflect.New(reflect.TypeFor[P]().Elem()).Interface().(P) //nolint:forcetypeassert // it is a P
}

// description is a Kind with the properties that its scheme defines.
type description[T Object] struct {
	Kind[T]
	scheme   *runtime.Scheme
	gvk      schema.GroupVersionKind // of the hub
	resource schema.GroupResource
	versions []schema.GroupVersion // that serve the kind
	list     reflect.Type
	// hasStatus reports whether the kind has the subresource status.
	hasStatus bool
	// losesFinalizers reports whether the source of the kind does not store finalizers.
	losesFinalizers bool
}

func (d *description[T]) newList() runtime.Object {
	return reflect.New(d.list).Interface().(runtime.Object) //nolint:forcetypeassert // the scheme has it
}

// describe registers the hub as the internal version and returns the description of the kind.
func (k Kind[T]) describe(scheme *runtime.Scheme) (*description[T], error) {
	d := &description[T]{Kind: k, scheme: scheme}
	example := reflect.TypeFor[T]()
	if example.Kind() != reflect.Pointer || example.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("kind of %s: expected a pointer to a struct", example)
	}
	gvks, _, err := scheme.ObjectKinds(newObject[T]())
	if err != nil {
		return nil, fmt.Errorf("kind of %s: %w", example, err)
	}
	gvks = slices.DeleteFunc(slices.Clone(gvks), func(gvk schema.GroupVersionKind) bool {
		return gvk.Version == runtime.APIVersionInternal
	})
	if len(gvks) == 0 || slices.ContainsFunc(gvks, func(gvk schema.GroupVersionKind) bool {
		return gvk.GroupKind() != gvks[0].GroupKind()
	}) {
		return nil, fmt.Errorf("kind of %s: it is registered as %v, expected versions of one kind", example, gvks)
	}
	d.gvk = gvks[0]
	list, err := scheme.New(d.gvk.GroupVersion().WithKind(d.gvk.Kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("kind %s: %w", d.gvk.Kind, err)
	}
	d.list = reflect.TypeOf(list).Elem()
	for _, obj := range []runtime.Object{newObject[T](), list} {
		if err := addInternal(scheme, obj); err != nil {
			return nil, fmt.Errorf("kind %s: %w; remove it, or the Kind", d.gvk.Kind, err)
		}
	}
	d.resource = schema.GroupResource{Group: d.gvk.Group, Resource: k.Resource}
	if k.Resource == "" {
		plural, _ := meta.UnsafeGuessKindToResource(d.gvk)
		d.resource.Resource = plural.Resource
	}
	for _, gv := range scheme.PrioritizedVersionsForGroup(d.gvk.Group) {
		if scheme.Recognizes(gv.WithKind(d.gvk.Kind)) {
			d.versions = append(d.versions, gv)
		}
	}
	_, d.hasStatus = k.Subresources["status"]
	return d, d.check()
}

// addInternal also registers a type as the internal version of its kind, unless it already is. It
// returns an error if another type is registered as the internal version.
func addInternal(scheme *runtime.Scheme, obj runtime.Object) error {
	gvks, _, err := scheme.ObjectKinds(obj)
	if err != nil {
		return err
	}
	gvk := schema.GroupVersion{Group: gvks[0].Group, Version: runtime.APIVersionInternal}.WithKind(gvks[0].Kind)
	switch known := scheme.AllKnownTypes()[gvk]; known {
	case reflect.TypeOf(obj).Elem():
	case nil:
		scheme.AddKnownTypeWithName(gvk, obj)
	default:
		return fmt.Errorf("the type %s is registered as internal", known)
	}
	return nil
}

// check returns all contradictions in the description as one error.
func (d *description[T]) check() error {
	var problems []error
	if wrong := validation.IsDNS1123Label(d.resource.Resource); len(wrong) > 0 {
		problems = append(problems, fmt.Errorf("resource %q: %s", d.resource.Resource, strings.Join(wrong, "; ")))
	}
	for i, c := range d.Columns {
		switch {
		case c.Name == "":
			problems = append(problems, fmt.Errorf("column %d: it has no name", i+1))
		case c.Value == nil:
			problems = append(problems, fmt.Errorf("column %s: there is no function Value", c.Name))
		case c.Type != "" && !slices.Contains(columnTypes, c.Type):
			problems = append(problems, fmt.Errorf("column %s: the type is %q, expected one of %v", c.Name, c.Type,
				columnTypes))
		}
	}
	problems = append(problems, d.checkPaths()...)
	problems = append(problems, d.checkSubresources()...)
	if d.Source != nil {
		for _, problem := range d.Source.check(d) {
			problems = append(problems, fmt.Errorf("source: %w", problem))
		}
	}
	for i, problem := range problems {
		problems[i] = fmt.Errorf("kind %s: %w", d.gvk.Kind, problem)
	}
	return utilerrors.NewAggregate(problems)
}
