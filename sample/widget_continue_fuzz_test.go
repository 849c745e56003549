// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"example.com/extension-apiserver/pkg/registry"
	"example.com/extension-apiserver/pkg/registry/subresource"
	"example.com/extension-apiserver/sample/apis/workshop"
	"example.com/extension-apiserver/sample/apis/workshop/install"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	validation "example.com/extension-apiserver/sample/validation/workshop"
)

// collections lists the collections of the fuzz test: two namespaces of which one is a prefix of
// the other, all namespaces, and the kind whose keys are next to widgets in etcd.
var collections = []struct{ resource, namespace string }{
	{"widgets", "demo"}, {"widgets", "demo-2"}, {"widgets", ""}, {"gadgets", ""},
}

// continued is the library's continue token, with the fields that an attacker can set.
type continued struct {
	Version         string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	Start           string `json:"start"`
}

// lists holds the storage and the objects that it contains.
type lists struct {
	storage map[string]rest.Storage
	// keys holds the keys of all objects by resource: namespace/name or name. now is the resource
	// version after the last write.
	keys map[string][]string
	now  int64
}

// newStorage returns the storage of the group as the server configures it, with its watch cache,
// on an etcd in this process.
func newStorage(t testing.TB, etcdQuota int64) map[string]rest.Storage {
	t.Helper()
	config := storagebackend.NewDefaultConfig("/registry", nil)
	config.Transport.ServerList = []string{runEtcd(t, etcdQuota)}
	scheme := runtime.NewScheme()
	utilruntime.Must(install.AddToScheme(scheme))
	utilruntime.Must(validation.AddToScheme(scheme))
	subresource.AddScaleToScheme(scheme)
	codecs := serializer.NewCodecFactory(scheme)
	config.Codec = codecs.LegacyCodec(install.StorageVersion())
	options := genericoptions.NewEtcdOptions(config)
	options.SkipHealthEndpoints = true
	group, err := registry.NewAPIGroupInfo(workshop.GroupName, API().Groups[0].Kinds, scheme, codecs,
		options.CreateRESTOptionsGetter(&genericoptions.SimpleStorageFactory{StorageConfig: *config}, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	storage := group.VersionedResourcesStorageMap["v1"]
	t.Cleanup(func() {
		for _, resource := range []string{"widgets", "gadgets"} {
			storage[resource].Destroy()
		}
	})
	return storage
}

func newLists(f *testing.F) *lists {
	f.Helper()
	l := &lists{storage: newStorage(f, 0), keys: map[string][]string{}}
	for _, key := range []string{"demo/a", "demo/b", "demo/c", "demo-2/a", "demo-2/b", "zoo/a"} {
		namespace, name, _ := strings.Cut(key, "/")
		l.create(f, "widgets", namespace, &v1.Widget{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.WidgetSpec{Model: "m", Grade: v1.WidgetGradeStandard, Replicas: new(int32(1))}})
	}
	for _, name := range []string{"a", "demo", "z"} {
		l.create(f, "gadgets", "", &v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.GadgetSpec{Purpose: "p", Precision: new(int32(2))}})
	}
	l.awaitCaches(f)
	return l
}

// awaitCaches waits for the watch caches to be initialized. Until then, a list with a resource
// version gets a response with 429.
func (l *lists) awaitCaches(f *testing.F) {
	f.Helper()
	for resource := range l.keys {
		var notReady error
		if err := wait.PollUntilContextTimeout(f.Context(), 10*time.Millisecond, 30*time.Second, true,
			func(context.Context) (bool, error) {
				notReady = l.storage[resource].(rest.StorageWithReadiness).ReadinessCheck()
				return notReady == nil, nil
			}); err != nil {
			f.Fatalf("watch cache of %s: %v: %v", resource, err, notReady)
		}
	}
}

// runEtcd starts an etcd that listens on a Unix socket, as the embedded etcd of the server does.
// The quota is in bytes; 0 selects etcd's default.
func runEtcd(t testing.TB, quota int64) string {
	t.Helper()
	config := embed.NewConfig()
	config.QuotaBackendBytes = quota
	config.Dir = filepath.Join(t.TempDir(), "etcd")
	config.ListenClientUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(t.TempDir(), "s")}}
	config.ListenPeerUrls = nil
	config.UnsafeNoFsync = true
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	select {
	case <-etcd.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		t.Fatal("etcd is not ready after 30 s")
	}
	return "unix://" + config.ListenClientUrls[0].Path
}

func requestOf(ctx context.Context, resource, namespace string) context.Context {
	gv := install.StorageVersion()
	return genericapirequest.WithNamespace(genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, APIGroup: gv.Group, APIVersion: gv.Version, Resource: resource, Namespace: namespace,
	}), namespace)
}

func (l *lists) create(f *testing.F, resource, namespace string, obj runtime.Object) {
	f.Helper()
	made, err := l.storage[resource].(rest.Creater).Create(requestOf(f.Context(), resource, namespace), obj,
		rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		f.Fatal(err)
	}
	object, err := meta.Accessor(made)
	if err != nil {
		f.Fatal(err)
	}
	l.keys[resource] = append(l.keys[resource], strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/"))
	if l.now, err = strconv.ParseInt(object.GetResourceVersion(), 10, 64); err != nil {
		f.Fatal(err)
	}
}

// list returns the keys of the objects in the collection, starting at the token.
func (l *lists) list(ctx context.Context, resource, namespace, token string, limit uint8) (keys []string, err error) {
	list, err := l.storage[resource].(rest.Lister).List(requestOf(ctx, resource, namespace),
		&internalversion.ListOptions{Continue: token, Limit: int64(limit)})
	if err != nil {
		return nil, err
	}
	return keys, meta.EachListItem(list, func(obj runtime.Object) error {
		object, err := meta.Accessor(obj)
		if kind := map[bool]string{true: "widgets", false: "gadgets"}[fmt.Sprintf("%T",
			obj) == "*v1.Widget"]; kind != resource {
			return fmt.Errorf("got a %T in the list of %s", obj, resource)
		}
		keys = append(keys, strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/"))
		return err
	})
}

// FuzzWidgetContinue checks that a continue token only selects where a list continues, never what
// it may read. For any token, a list contains only objects of its own resource and namespace,
// from the start key in the token on. Otherwise the server rejects the token.
func FuzzWidgetContinue(f *testing.F) {
	l := newLists(f)
	for i := range collections {
		for _, start := range []string{
			"b", "b\x00", "\x00", "/", "", "a/..", "../demo-2/a", "/../demo-2/a", "demo/b\x00", "demo-2/", "/demo/b",
			"..", "./b", "b//c", "\xff", "zzzz", "//", "%2e%2e%2fdemo-2", "-2/a",
		} {
			f.Add(uint8(i), start, int64(-1), uint8(0), "")
			f.Add(uint8(i), start, int64(0), uint8(2), "")
		}
		f.Add(uint8(i), "b", int64(3), uint8(1), "")
		for _, token := range []string{"=", "e30", "bnVsbA", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJiIn0",
			"eyJ2IjoidjIiLCJydiI6LTEsInN0YXJ0IjoiYiJ9", "\x00"} {
			f.Add(uint8(i), "", int64(-1), uint8(0), token)
		}
	}
	f.Fuzz(func(t *testing.T, collection uint8, start string, version int64, limit uint8, token string) {
		c := collections[int(collection)%len(collections)]
		if token == "" {
			data, err := json.Marshal(continued{"meta.k8s.io/v1", version, start})
			if err != nil {
				t.Fatal(err)
			}
			token = base64.RawURLEncoding.EncodeToString(data)
		}
		from, ok := decoded(token)
		if from.ResourceVersion > l.now {
			// The server would wait 3 s for a resource version in the future, and then reject the
			// request.
			return
		}
		got, err := l.list(t.Context(), c.resource, c.namespace, token, limit)
		if !ok {
			if !apierrors.IsBadRequest(err) {
				t.Errorf("token %q: got %v and error %v, want a bad request", token, got, err)
			}
			return
		}
		if err != nil {
			t.Fatalf("token of %+v: got error %v, want a list", from, err)
		}
		prefix := ""
		if c.namespace != "" {
			prefix = c.namespace + "/"
		}
		want := slices.DeleteFunc(slices.Sorted(slices.Values(l.keys[c.resource])), func(key string) bool {
			return !strings.HasPrefix(key, prefix) || key < prefix+strings.TrimPrefix(from.Start, "/")
		})
		if from.ResourceVersion > 0 && from.ResourceVersion < l.now {
			// Some of the objects did not exist at that resource version.
			if slices.ContainsFunc(got, func(key string) bool { return !slices.Contains(want, key) }) {
				t.Errorf("%s in %q, token of %+v: got %v, want some of %v", c.resource, c.namespace, from, got, want)
			}
			return
		}
		if limit > 0 && len(want) > int(limit) {
			want = want[:limit]
		}
		if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
			t.Errorf("%s in %q, token of %+v (-want +got):\n%s", c.resource, c.namespace, from, diff)
		}
	})
}

// decoded decodes a token and reports whether it is valid. A start key that is not a clean path
// is invalid.
func decoded(token string) (from continued, ok bool) {
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || json.Unmarshal(data, &from) != nil {
		return continued{}, false
	}
	start := "/" + strings.TrimPrefix(from.Start, "/")
	return from, from.Version == "meta.k8s.io/v1" && from.ResourceVersion != 0 && from.Start != "" &&
		path.Clean(start) == start
}
