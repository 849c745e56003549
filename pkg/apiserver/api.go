// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	openapicommon "k8s.io/kube-openapi/pkg/common"

	"example.com/extension-apiserver/internal/restoptions"
	"example.com/extension-apiserver/pkg/apis/identity"
	"example.com/extension-apiserver/pkg/apis/openapi"
	"example.com/extension-apiserver/pkg/registry"
	"example.com/extension-apiserver/pkg/registry/identityreview"
	"example.com/extension-apiserver/pkg/registry/subresource"
)

// API describes the groups and kinds that a server serves. The k8s.io libraries keep feature
// gates, metrics and the monitor of storage sizes per process, so servers in one process share
// them.
type API struct {
	// Name is the component's name in logs, metrics, hints and the default of --data-dir. It must
	// be a DNS label.
	Name string
	// Groups are the API groups. At least one is required.
	Groups []Group
	// OpenAPI returns the generated definitions of the kinds of all groups and versions. The
	// server adds the definitions of the types that every server has.
	OpenAPI openapicommon.GetOpenAPIDefinitions
	// EmbeddedEtcd is the etcd that runs in the server's process if --etcd-servers is not set.
	// Use embeddedetcd.Server. Default: none, which makes --etcd-servers required. A server whose
	// kinds all have a Source, or no storage, has no etcd and no flags for it.
	EmbeddedEtcd EmbeddedEtcd
	// Flags are additional flags of the command serve. Default: none.
	Flags []Flags
	// Admission lists admission plugins in call order. They are called after NamespaceLifecycle
	// and before policies and webhooks.
	Admission []AdmissionPlugin
	// PostStart maps names, which must be DNS labels, to functions that run when the server
	// serves.
	PostStart map[string]PostStartHook
	// Permissions are the permissions that the hooks of the API need in the cluster. While one is
	// missing, the server reports it in /readyz, is not ready, and rejects writes. The role in
	// manifests/api and package envtest grant them.
	Permissions []rbacv1.PolicyRule
	// NamespacePermissions are the permissions that the hooks need in the server's own namespace,
	// Runtime.Namespace. They have the same effect as Permissions.
	NamespacePermissions []rbacv1.PolicyRule
}

// Group is an API group.
type Group struct {
	// Name must be a DNS subdomain with a dot. k8s.io and kubernetes.io and their subdomains are
	// reserved.
	Name string
	// AddToScheme registers the kinds of each version of the group with their defaults and
	// conversions, and the internal types of kinds that have one. It sets the order of the
	// versions with runtime.Scheme.SetVersionPriority, the preferred version first.
	AddToScheme func(*runtime.Scheme) error
	// Validation registers the generated validation of the kinds, which clients do not import.
	// Default: none, if AddToScheme registers it.
	Validation func(*runtime.Scheme) error
	// StorageVersion is the version in which objects are stored in etcd, such as v1. A kind
	// without this version is stored in its preferred version.
	StorageVersion string
	// Kinds are served in each version that registers them. Each is the NewStorage of a
	// registry.Kind, or a function that creates the storage of a kind.
	Kinds []registry.NewStorage
	// IdentityReview is the version that serves the kind IdentityReview, such as v1. Default:
	// none.
	IdentityReview string
}

// EmbeddedEtcd is an etcd in the server's process. Only servers that import package embeddedetcd
// link one.
type EmbeddedEtcd interface {
	// ValidateDataDir returns all validation errors of a data directory.
	ValidateDataDir(dataDir string) []error
	// Start starts etcd on the directory and waits until it serves clients at endpoint. If etcd
	// fails later, its error is sent to failed. closeEtcd stops etcd and releases the directory.
	// Call it after the server that uses the etcd has stopped.
	Start(ctx context.Context, dataDir string) (endpoint string, failed <-chan error, closeEtcd func(), err error)
}

// GroupVersions returns the served versions by group, the preferred version of each group first.
// It returns nil if the API is invalid.
func (a API) GroupVersions() []schema.GroupVersion {
	scheme, err := a.newScheme()
	if err != nil {
		return nil // Validate reports the error
	}
	var all []schema.GroupVersion
	for _, g := range a.Groups {
		all = append(all, scheme.PrioritizedVersionsForGroup(g.Name)...)
	}
	return all
}

// storageVersions returns the storage version of each group.
func (a API) storageVersions() []schema.GroupVersion {
	var all []schema.GroupVersion
	for _, g := range a.Groups {
		all = append(all, g.version(g.StorageVersion))
	}
	return all
}

func (g Group) version(name string) schema.GroupVersion {
	return schema.GroupVersion{Group: g.Name, Version: name}
}

func (g Group) servesIdentityReview(scheme *runtime.Scheme) bool {
	return scheme.Recognizes(g.version(g.IdentityReview).WithKind("IdentityReview"))
}

// storageScheme returns a scheme in which the storage version of each group is its preferred
// version.
func (a API) storageScheme() (*runtime.Scheme, error) {
	scheme, err := a.newScheme()
	if err != nil {
		return nil, err
	}
	for _, g := range a.Groups {
		stored := g.version(g.StorageVersion)
		others := slices.DeleteFunc(scheme.PrioritizedVersionsForGroup(g.Name),
			func(gv schema.GroupVersion) bool { return gv == stored })
		if err := scheme.SetVersionPriority(append([]schema.GroupVersion{stored}, others...)...); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// apiGroupInfo creates the storage of all kinds of the group.
func (g Group) apiGroupInfo(scheme *runtime.Scheme, codecs serializer.CodecFactory,
	optsGetter generic.RESTOptionsGetter,
	authz authorizer.Authorizer) (*genericapiserver.APIGroupInfo, error) {
	kinds := slices.Clone(g.Kinds)
	if g.servesIdentityReview(scheme) {
		kinds = append(kinds, identityreview.NewStorage)
	}
	return registry.NewAPIGroupInfo(g.Name, kinds, scheme, codecs, optsGetter, authz)
}

// openAPI returns the definitions of the kinds of the API and of the types that every server has.
func (a API) openAPI(ref openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
	definitions := openapi.GetOpenAPIDefinitions(ref)
	maps.Copy(definitions, a.OpenAPI(ref))
	return definitions
}

// newScheme returns a new scheme with the kinds of the API and the kinds that every server has.
func (a API) newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	// Version v1 of the core group has the options of requests (GetOptions, ListOptions, ...) and
	// the kinds of responses that every API server sends, such as Status and discovery documents.
	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, unversioned)
	scheme.AddUnversionedTypes(unversioned,
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	subresource.AddScaleToScheme(scheme)
	for _, g := range a.Groups {
		if err := g.addToScheme(scheme); err != nil {
			return scheme, err
		}
	}
	return scheme, nil
}

func (g Group) addToScheme(scheme *runtime.Scheme) error {
	if g.AddToScheme == nil {
		return fmt.Errorf("AddToScheme of the group %q is required", g.Name)
	}
	if err := g.AddToScheme(scheme); err != nil {
		return fmt.Errorf("register the kinds of the group %q: %w", g.Name, err)
	}
	if g.Validation != nil {
		if err := g.Validation(scheme); err != nil {
			return fmt.Errorf("register the validation of the group %q: %w", g.Name, err)
		}
	}
	gv := g.version(g.IdentityReview)
	if g.servesIdentityReview(scheme) {
		return fmt.Errorf("IdentityReview is %q, and AddToScheme registers a kind IdentityReview in %s",
			g.IdentityReview, gv)
	}
	// Registering the kind in any other version would create that version.
	if slices.Contains(scheme.PrioritizedVersionsForGroup(g.Name), gv) {
		identity.AddToScheme(scheme, gv)
	}
	return nil
}

// Validate returns all validation errors as one error. It creates the storage of each kind once,
// without etcd.
func (a API) Validate() error {
	_, err := a.NewScheme()
	return err
}

// NewScheme returns a new scheme with everything that a server of the API registers. If the API
// is invalid, it returns all validation errors, like Validate. Kinds complete the scheme when
// their storage is created the first time. Nothing is registered later, because servers read a
// scheme without locks.
func (a API) NewScheme() (*runtime.Scheme, error) {
	scheme, _, err := a.check()
	return scheme, err
}

// check returns the scheme of NewScheme, and the resources that are stored in etcd.
func (a API) check() (*runtime.Scheme, []schema.GroupResource, error) {
	var problems []error
	var stored storedResources
	for _, wrong := range validation.IsDNS1123Label(a.Name) {
		problems = append(problems, fmt.Errorf("the name is %q: %s", a.Name, wrong))
	}
	if a.OpenAPI == nil {
		problems = append(problems, errors.New("OpenAPI is required: set the generated definitions"))
	}
	if len(a.Groups) == 0 {
		problems = append(problems, errors.New("at least one group is required"))
	}
	problems = append(problems, a.validateExtensions()...)
	names := sets.New[string]()
	for _, g := range a.Groups {
		problems = append(problems, g.validateName()...)
		if names.Has(g.Name) {
			problems = append(problems, fmt.Errorf("duplicate group %q", g.Name))
		}
		names.Insert(g.Name)
	}
	scheme, err := a.newScheme()
	if err != nil {
		problems = append(problems, err)
	} else {
		for _, g := range a.Groups {
			problems = append(problems, g.validateVersions(scheme)...)
			problems = append(problems, g.validateKinds(scheme, &stored)...)
		}
		problems = append(problems, a.validateOpenAPI(scheme)...)
	}
	if len(problems) > 0 {
		return nil, nil, fmt.Errorf("the API cannot be served: %w", utilerrors.NewAggregate(problems))
	}
	return scheme, stored, nil
}

// storedResources are options of stores without a storage. They record which stores need etcd.
type storedResources []schema.GroupResource

// GetRESTOptions implements generic.RESTOptionsGetter.
func (s *storedResources) GetRESTOptions(of schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	if _, ok := example.(restoptions.Sourced); !ok {
		*s = append(*s, of)
	}
	return registry.Unconnected{}.GetRESTOptions(of, example)
}

func (g Group) validateName() []error {
	var problems []error
	for _, wrong := range validation.IsDNS1123Subdomain(g.Name) {
		problems = append(problems, fmt.Errorf("the group is %q: %s", g.Name, wrong))
	}
	switch {
	case g.Name != "" && !strings.Contains(g.Name, "."):
		problems = append(problems, fmt.Errorf("the group is %q: must contain a dot, such as %s.example.com",
			g.Name, g.Name))
	case reserved(g.Name):
		problems = append(problems,
			fmt.Errorf("the group is %q: *.k8s.io and *.kubernetes.io are reserved for Kubernetes", g.Name))
	}
	return problems
}

func reserved(group string) bool {
	for _, domain := range []string{"k8s.io", "kubernetes.io"} {
		if group == domain || strings.HasSuffix(group, "."+domain) {
			return true
		}
	}
	return false
}

// versionName matches the version names that kube-apiserver sorts by stability.
var versionName = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)

func (g Group) validateVersions(scheme *runtime.Scheme) []error {
	var problems []error
	versions := scheme.PrioritizedVersionsForGroup(g.Name)
	for _, gv := range versions {
		if !versionName.MatchString(gv.Version) {
			problems = append(problems, fmt.Errorf("the version is %q: must have the form v1, v1beta1 or v1alpha1",
				gv.Version))
		}
	}
	switch {
	case len(versions) == 0:
		problems = append(problems, fmt.Errorf("AddToScheme registers no version of the group %q", g.Name))
	case g.StorageVersion == "":
		problems = append(problems, fmt.Errorf("StorageVersion is required: one of %v", versions))
	case !slices.Contains(versions, g.version(g.StorageVersion)):
		problems = append(problems, fmt.Errorf("StorageVersion is %q: must be one of %v", g.StorageVersion, versions))
	}
	if g.IdentityReview != "" && !g.servesIdentityReview(scheme) {
		problems = append(problems, fmt.Errorf("IdentityReview is %q: must be one of %v", g.IdentityReview, versions))
	}
	return problems
}

func (g Group) validateKinds(scheme *runtime.Scheme, stored *storedResources) []error {
	if len(g.Kinds) == 0 {
		return []error{fmt.Errorf("the group %q has no kinds", g.Name)}
	}
	_, err := g.apiGroupInfo(scheme, serializer.NewCodecFactory(scheme), stored, nil)
	if all, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		return all.Errors()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}
