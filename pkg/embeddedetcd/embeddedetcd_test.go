// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func start(t *testing.T, dir string) (endpoint string, closeEtcd func()) {
	t.Helper()
	endpoint, _, closeEtcd, err := Server{}.Start(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return endpoint, closeEtcd
}

func etcdClient(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Context: t.Context(), Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestEmbeddedEtcd: the directory has mode 0700 even if it existed before, and stored data
// survives a restart.
func TestEmbeddedEtcd(t *testing.T) {
	parent := t.TempDir()
	open := filepath.Join(parent, "open")
	if err := os.Mkdir(open, 0o755); err != nil { //nolint:gosec // what the server has to correct
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"new": filepath.Join(parent, "new", "data"), "open to all": open} {
		t.Run(name, func(t *testing.T) {
			endpoint, closeEtcd := start(t, dir)
			info, err := os.Stat(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != 0o700 {
				t.Errorf("mode of the directory: got %o, want 700, since etcd lets every user use its socket", got)
			}
			if got, want := endpoint, "unix://"+filepath.Join(dir, "etcd.sock"); got != want {
				t.Errorf("endpoint: got %s, want %s", got, want)
			}
			if _, err := etcdClient(t, endpoint).Put(t.Context(), "key", "value"); err != nil {
				t.Fatal(err)
			}
			closeEtcd()

			endpoint, closeEtcd = start(t, dir)
			defer closeEtcd()
			got, err := etcdClient(t, endpoint).Get(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "value" {
				t.Errorf("key after a restart: got %v, want value", got.Kvs)
			}
		})
	}
}

// TestDataDirInUse: a second server on the directory fails at once and does not affect the first.
func TestDataDirInUse(t *testing.T) {
	dir := t.TempDir()
	first, closeFirst := start(t, dir)
	defer closeFirst()
	refused := make(chan error, 1)
	go func() {
		_, _, _, err := Server{}.Start(t.Context(), dir)
		refused <- err
	}()
	select {
	case err := <-refused:
		if want := "--data-dir " + dir +
			" is in use by another server; stop it, or choose another directory"; err == nil || err.Error() != want {
			t.Errorf("second server: got error %v, want %s", err, want)
		}
	case <-time.After(5 * time.Second):
		// The database would wait for its own lock forever.
		t.Fatal("second server: still waiting after 5 s, want it refused at once")
	}
	if _, err := etcdClient(t, first).Put(t.Context(), "key", "value"); err != nil {
		t.Errorf("first server after the second: %v, want it to continue", err)
	}
}

// TestStartInterrupted: after a cancelled start, the directory can be used again.
func TestStartInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// If the member becomes ready before Start checks the context, it runs.
	_, _, closeEtcd, err := Server{}.Start(ctx, dir)
	switch {
	case err == nil:
		closeEtcd()
	case !errors.Is(err, context.Canceled):
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	_, closeEtcd = start(t, dir)
	closeEtcd()
}

// TestDataDirUnusable: the error names the flag and has a hint.
func TestDataDirUnusable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, _, err := Server{}.Start(t.Context(), filepath.Join(file, "data"))
	if err == nil || !strings.HasPrefix(err.Error(), "create --data-dir: ") ||
		!strings.HasSuffix(err.Error(), "choose a directory that this user can write") {
		t.Errorf("got error %v, want one with the hint to choose another directory", err)
	}
}

func TestValidateDataDir(t *testing.T) {
	// "/etcd.sock" uses 10 of the 107 bytes.
	longest := "/" + strings.Repeat("d", 96)
	for _, tc := range []struct{ name, dir, want string }{
		{"longest", longest, ""},
		{"too long", longest + "d", "--data-dir " + longest + "d: the path of its socket " + longest +
			"d/etcd.sock has 108 bytes, and must have at most 107; choose a shorter directory"},
		{"relative", "data", ""},
		{"none", "", "--data-dir is required for the embedded etcd, or --etcd-servers for an external one"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			for _, err := range (Server{}).ValidateDataDir(tc.dir) {
				got += err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
