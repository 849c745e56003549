// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// TestStoredEncoding checks that each kind is stored in etcd in the same encoding as built-in
// kinds.
func TestStoredEncoding(t *testing.T) {
	for _, k := range kindCases {
		t.Run(k.resource.Resource, func(t *testing.T) {
			client := k.client(t, shared.Admin(t), shared.NewNamespace(t))
			name := uniqueName(t)
			if _, err := client.Create(t.Context(), k.object(t, name), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			storedAsProtobuf(t, shared, "/"+name)
			if err := client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// storedAsProtobuf reads an object directly from the embedded etcd. The object must be stored
// once, as protobuf of the storage version. path is the end of its key.
func storedAsProtobuf(t *testing.T, e *envtest.Environment, path string) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Context: t.Context(), Endpoints: []string{"unix://" + filepath.Join(e.Dir, "data-1", "etcd.sock")},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	all, err := client.Get(t.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, kv := range all.Kvs {
		if !strings.HasSuffix(string(kv.Key), path) {
			continue
		}
		found++
		if !bytes.HasPrefix(kv.Value, []byte("k8s\x00")) {
			t.Errorf("stored %s: %.40q, want protobuf", kv.Key, kv.Value)
			continue
		}
		obj, err := runtime.Decode(codecs.UniversalDeserializer(), kv.Value)
		if err != nil {
			t.Errorf("stored %s: %v", kv.Key, err)
			continue
		}
		if got := obj.GetObjectKind().GroupVersionKind().GroupVersion(); got != install.GroupVersions()[0] {
			t.Errorf("stored %s: %s, want %s", kv.Key, got, install.GroupVersions()[0])
		}
	}
	if found != 1 {
		t.Errorf("stored under %s: %d objects, want 1", path, found)
	}
}
