// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/extension-apiserver/pkg/registry/strategy"
	"example.com/extension-apiserver/sample/apis/workshop"
	"example.com/extension-apiserver/sample/apis/workshop/install"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	validation "example.com/extension-apiserver/sample/validation/workshop"
)

// group is the group of the requests. The versions need not exist.
const group = workshop.GroupName

// rules is the strategy of the main resource. It accepts updates of the purpose.
type rules struct {
	strategy.Base
	// createOnUpdate is true for some kinds, such as Lease.
	createOnUpdate bool
	invalid        field.ErrorList
}

func (rules) NamespaceScoped() bool                                    { return false }
func (r rules) AllowCreateOnUpdate(context.Context) bool               { return r.createOnUpdate }
func (rules) PrepareForCreate(context.Context, runtime.Object)         {}
func (rules) Validate(context.Context, runtime.Object) field.ErrorList { return nil }
func (rules) PrepareForUpdate(_ context.Context, _, _ runtime.Object)  {}
func (r rules) ValidateUpdate(_ context.Context, _, _ runtime.Object) field.ErrorList {
	return r.invalid
}

func (rules) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{"main/v1": fieldpath.NewSet()}
}

// TestMain stops etcd if a test started it.
func TestMain(m *testing.M) {
	code := m.Run()
	stopEtcd()
	os.Exit(code)
}

// stopEtcd stops the etcd that endpoint started.
var stopEtcd = func() {}

// endpoint starts one etcd for the whole package, in which each test has its own prefix. Only
// this user can reach it, and it is fast because it does not sync to disk. The library's own
// (k8s.io/apiserver/pkg/storage/etcd3/testing) starts one per test, on a port that every local
// user can reach. Tests and fuzz tests of streams need no etcd.
var endpoint = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		panic(err)
	}
	config := embed.NewConfig()
	config.Dir, config.UnsafeNoFsync, config.LogLevel = filepath.Join(dir, "data"), true, "fatal"
	config.ListenClientUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(dir, "etcd.sock")}}
	config.ListenPeerUrls = nil
	server, err := embed.StartEtcd(config)
	if err != nil {
		panic(err)
	}
	stopEtcd = func() {
		server.Close()
		_ = os.RemoveAll(dir)
	}
	<-server.Server.ReadyNotify()
	return config.ListenClientUrls[0].String()
})

// newStore returns a store like those of the kinds.
func newStore(t *testing.T, r rules) (*genericregistry.Store, rules) {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(install.AddToScheme(scheme))
	utilruntime.Must(validation.AddToScheme(scheme))
	AddScaleToScheme(scheme)
	r.Base = strategy.New(scheme, workshop.GroupName)
	config := storagebackend.NewDefaultConfig("/"+t.Name(),
		serializer.NewCodecFactory(scheme).LegacyCodec(v1.SchemeGroupVersion))
	config.Transport.ServerList = []string{endpoint()}
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &v1.Gadget{} },
		NewListFunc:               func() runtime.Object { return &v1.GadgetList{} },
		DefaultQualifiedResource:  workshop.Resource("gadgets"),
		SingularQualifiedResource: workshop.Resource("gadget"),
		CreateStrategy:            r,
		UpdateStrategy:            r,
		DeleteStrategy:            r,
		ResetFieldsStrategy:       r,
		TableConvertor:            rest.NewDefaultTableConvertor(workshop.Resource("gadgets")),
	}
	options := generic.RESTOptions{
		StorageConfig: config.ForResource(store.DefaultQualifiedResource), Decorator: generic.UndecoratedStorage,
		ResourcePrefix: "gadgets",
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: options}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Destroy)
	return store, r
}

// in returns the context of a request in the version.
func in(t *testing.T, version string) context.Context {
	t.Helper()
	ctx := genericapirequest.WithNamespace(t.Context(), metav1.NamespaceNone)
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: "update", APIGroup: group, APIVersion: version, Resource: "gadgets",
	})
}

// create stores a gadget of precision 2 with the given managedFields entries.
func create(t *testing.T, store *genericregistry.Store, name string,
	owners ...metav1.ManagedFieldsEntry) *v1.Gadget {
	t.Helper()
	gadget := &v1.Gadget{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"a": "b"}, ManagedFields: owners},
		Spec:       v1.GadgetSpec{Purpose: "measures", Precision: new(int32(2))},
	}
	obj, err := store.Create(in(t, "v1"), gadget, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*v1.Gadget)
}

// get returns the stored gadget.
func get(t *testing.T, store *genericregistry.Store, name string) *v1.Gadget {
	t.Helper()
	obj, err := store.Get(in(t, "v1"), name, &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*v1.Gadget)
}

// change returns an update that reads the object or its scale and returns it changed, like a
// patch.
func change[T runtime.Object](apply func(T)) rest.UpdatedObjectInfo {
	return rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		updated := old.DeepCopyObject().(T)
		apply(updated)
		return updated, nil
	})
}
