// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"context"
	"errors"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Scaling defines how a kind is scaled. kubectl scale and the HorizontalPodAutoscaler use
// autoscaling/v1 Scale and know nothing about the kind.
type Scaling struct {
	// Scale returns the spec and the status of an object's scale. The caller sets its metadata.
	Scale func(obj runtime.Object) *autoscalingv1.Scale
	// SetReplicas sets the desired number of replicas in an object.
	SetReplicas func(obj runtime.Object, replicas int32)
	// ReplicasPaths maps each served version to the path of its replicas field. It lets
	// server-side apply translate the ownership of the field between the object and its scale. If
	// the path is spec.replicas in any version, errors use the field names of Scale.
	ReplicasPaths managedfields.ResourcePathMappings
}

// AddScaleToScheme registers the kind of the subresource scale. The kind belongs to another group
// than its parent, and its internal version is the same type.
func AddScaleToScheme(scheme *runtime.Scheme) {
	for _, version := range []string{runtime.APIVersionInternal, autoscalingv1.SchemeGroupVersion.Version} {
		scheme.AddKnownTypes(schema.GroupVersion{Group: autoscalingv1.GroupName, Version: version},
			&autoscalingv1.Scale{})
	}
}

// NewScale returns the storage of "<resource>/scale". The object with the changed number must
// pass the validation of the main resource.
func NewScale(store *genericregistry.Store, scaling Scaling) rest.Storage {
	scaleStore := *store
	if v := scaling.version(); v != "" {
		scaleStore.UpdateStrategy = scaleStrategy{store.UpdateStrategy, v}
	}
	return &scaleREST{&scaleStore, scaling}
}

// version returns the highest version of the kind whose replicas path is that of Scale, or "" if
// there is none.
func (s Scaling) version() string {
	var found string
	for apiVersion, path := range s.ReplicasPaths {
		gv, err := schema.ParseGroupVersion(apiVersion)
		if err == nil && path.Equals(fieldpath.MakePathOrDie("spec", "replicas")) &&
			version.CompareKubeAwareVersionStrings(gv.Version, found) > 0 {
			found = gv.Version
		}
	}
	return found
}

// scaleStrategy validates each request in one version, because Scale is the same in all versions
// of the kind.
type scaleStrategy struct {
	rest.RESTUpdateStrategy
	version string
}

func (s scaleStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	if info, ok := genericapirequest.RequestInfoFrom(ctx); ok {
		inVersion := *info
		inVersion.APIVersion = s.version
		ctx = genericapirequest.WithRequestInfo(ctx, &inVersion)
	}
	return s.RESTUpdateStrategy.ValidateUpdate(ctx, obj, old)
}

type scaleREST struct {
	store   *genericregistry.Store
	scaling Scaling
}

var (
	_ rest.Patcher                  = &scaleREST{}
	_ rest.GroupVersionKindProvider = &scaleREST{}
)

// GroupVersionKind returns autoscaling/v1 Scale for every version of the group.
func (*scaleREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return autoscalingv1.SchemeGroupVersion.WithKind("Scale")
}

func (*scaleREST) New() runtime.Object { return &autoscalingv1.Scale{} }

// Destroy does nothing: the main resource destroys the store.
func (*scaleREST) Destroy() {}

func (r *scaleREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return r.scaling.from(obj)
}

// Update never creates an object. Admission receives the scale, as for built-in kinds.
func (r *scaleREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object,
	bool, error) {
	obj, _, err := r.store.Update(ctx, name, &updatedScale{objInfo, r.store.DefaultQualifiedResource, name, r.scaling},
		rest.ValidateAllObjectFunc,
		func(ctx context.Context, obj, old runtime.Object) error {
			scale, err := r.scaling.from(obj)
			if err != nil || updateValidation == nil {
				return err
			}
			oldScale, err := r.scaling.from(old)
			if err != nil {
				return err
			}
			return updateValidation(ctx, scale, oldScale)
		}, false, options)
	if err != nil {
		return nil, false, err
	}
	scale, err := r.scaling.from(obj)
	return scale, false, err
}

func (r *scaleREST) ConvertToTable(ctx context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	return rest.NewDefaultTableConvertor(r.store.DefaultQualifiedResource).ConvertToTable(ctx, object, tableOptions)
}

// from returns the scale of an object with the metadata that identifies the object.
func (s Scaling) from(obj runtime.Object) (*autoscalingv1.Scale, error) {
	object, ok := obj.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("scale: expected an object with metadata, found %T", obj)
	}
	scale := s.Scale(obj)
	scale.ObjectMeta = metav1.ObjectMeta{
		Name: object.GetName(), Namespace: object.GetNamespace(), UID: object.GetUID(),
		ResourceVersion: object.GetResourceVersion(), CreationTimestamp: object.GetCreationTimestamp(),
	}
	return scale, nil
}

// updatedScale converts the stored object to its scale, lets the request change the scale, and
// applies the change to the object.
type updatedScale struct {
	rest.UpdatedObjectInfo
	resource schema.GroupResource
	name     string
	scaling  Scaling
}

func (u *updatedScale) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	obj := old.DeepCopyObject()
	object, ok := obj.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("scale: expected an object with metadata, found %T", obj)
	}
	// If the object does not exist, the store passes an empty object.
	if object.GetResourceVersion() == "" {
		return nil, apierrors.NewNotFound(u.resource, u.name)
	}
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	if !ok {
		return nil, apierrors.NewInternalError(errors.New("scale: the version of the request is not known"))
	}
	gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	owners := managedfields.NewScaleHandler(object.GetManagedFields(), gv, u.scaling.ReplicasPaths)
	oldScale, err := u.scaling.from(obj)
	if err != nil {
		return nil, err
	}
	if oldScale.ManagedFields, err = owners.ToSubresource(); err != nil {
		return nil, fmt.Errorf("owners of the scale: %w", err)
	}
	updated, err := u.UpdatedObjectInfo.UpdatedObject(ctx, oldScale)
	if err != nil {
		return nil, err
	}
	scale, ok := updated.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected autoscaling/v1 Scale, found %T", updated))
	}
	if scale.UID != "" && scale.UID != object.GetUID() {
		return nil, apierrors.NewConflict(u.resource, u.name,
			fmt.Errorf("metadata.uid is %s, that of the object is %s", scale.UID, object.GetUID()))
	}
	u.scaling.SetReplicas(obj, scale.Spec.Replicas)
	// The store compares this with the stored resourceVersion.
	object.SetResourceVersion(scale.ResourceVersion)
	entries, err := owners.ToParent(scale.ManagedFields)
	if err != nil {
		return nil, fmt.Errorf("owners of the scaled object: %w", err)
	}
	object.SetManagedFields(entries)
	return obj, nil
}
