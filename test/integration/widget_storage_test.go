// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// TestWidgetStorageMigration checks that an object that an older server stored in another version
// is read unchanged, and that the documented command rewrites it in the storage version.
func TestWidgetStorageMigration(t *testing.T) {
	namespace := shared.NewNamespace(t)
	newWidget(t, namespace, "w")
	client := widgetCase.client(t, shared.Admin(t), namespace)
	before, err := client.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	store := embeddedStore(t, shared)
	key := storedKey(t, store, "/widgets/"+namespace+"/w")
	for _, gv := range install.GroupVersions()[1:] {
		rewrite(t, store, key, gv)
		if version := storedVersion(t, store, key); version != gv.Version {
			t.Fatalf("stored as %s, want %s, as an older server had it", version, gv.Version)
		}
		runDocumented(t, shared, "build/versions-and-conversion.md", `kubectl get \S+ --all-namespaces .* kubectl replace .*`)
		if version := storedVersion(t, store, key); version != install.GroupVersions()[0].Version {
			t.Errorf("stored as %s after the migration from %s, want %s", version, gv.Version,
				install.GroupVersions()[0].Version)
		}
	}
	after, err := client.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if after.GetGeneration() != before.GetGeneration() || after.GetUID() != before.GetUID() ||
		len(after.GetAnnotations()) != 0 {
		t.Errorf("widget after two migrations: %+v, want it unchanged: %+v", after, before)
	}
}

// embeddedStore returns a client of the server's embedded etcd, which bypasses all checks of the
// server.
func embeddedStore(t *testing.T, e *envtest.Environment) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Context: t.Context(),
		Endpoints: []string{"unix://" + filepath.Join(e.Dir, "data-1", "etcd.sock")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// storedKey returns the only key that ends with path.
func storedKey(t *testing.T, store *clientv3.Client, path string) string {
	t.Helper()
	all, err := store.Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range all.Kvs {
		if strings.HasSuffix(string(kv.Key), path) {
			keys = append(keys, string(kv.Key))
		}
	}
	if len(keys) != 1 {
		t.Fatalf("keys in etcd that end with %s: %v, want one", path, keys)
	}
	return keys[0]
}

func storedBytes(t *testing.T, store *clientv3.Client, key string) []byte {
	t.Helper()
	got, err := store.Get(t.Context(), key)
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("read %s from etcd: %v, %v; want one value", key, got, err)
	}
	return got.Kvs[0].Value
}

// rewrite stores an object in another version.
func rewrite(t *testing.T, store *clientv3.Client, key string, gv schema.GroupVersion) {
	t.Helper()
	obj, err := runtime.Decode(hubCodecs.UniversalDecoder(install.StorageVersion()), storedBytes(t, store, key))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	encoder := hubCodecs.EncoderForVersion(protobuf.NewSerializer(hubScheme, hubScheme), gv)
	if err := encoder.Encode(obj, &out); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(t.Context(), key, out.String()); err != nil {
		t.Fatal(err)
	}
}

func storedVersion(t *testing.T, store *clientv3.Client, key string) string {
	t.Helper()
	var unknown runtime.Unknown
	if _, _, err := protobuf.NewSerializer(hubScheme, hubScheme).Decode(storedBytes(t, store, key), nil,
		&unknown); err != nil {
		t.Fatal(err)
	}
	gv, err := schema.ParseGroupVersion(unknown.APIVersion)
	if err != nil {
		t.Fatal(err)
	}
	return gv.Version
}

// runDocumented runs the only command of a page in docs that matches, and retries it as a reader
// would: objects can change or disappear between its reads and its writes.
func runDocumented(t *testing.T, e *envtest.Environment, page, command string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^ *`+command+`$`).FindAllString(string(text), -1)
	if len(found) != 1 {
		t.Fatalf("docs/%s: %d lines match %s, want one", page, len(found), command)
	}
	run := found[0]
	kubeconfig, err := e.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := filepath.Abs(filepath.Join("..", "..", "bin", envtest.Minor()))
	if err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, run+" to succeed", envtest.WaitTimeout, func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", run)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}
