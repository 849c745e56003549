// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestBackup checks that a snapshot of a running server restores all its data after a loss, and
// that no client keeps later data.
func TestBackup(t *testing.T) {
	for name, tc := range map[string]struct {
		options envtest.Options
		// lose destroys the storage of a stopped server and restores it from a snapshot file.
		lose func(t *testing.T, e *envtest.Environment, file string)
	}{
		"embedded etcd": {envtest.Options{}, loseEmbedded},
		"external etcd": {envtest.Options{ExternalEtcd: true}, loseExternal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := envtest.New(t, tc.options)
			namespace := e.NewNamespace(t)
			want := map[string][]unstructured.Unstructured{}
			for _, k := range kindCases {
				client := k.client(t, e.Admin(t), namespace)
				for i := range 5 {
					create(t, k, e, namespace, fmt.Sprintf("saved-%d", i))
				}
				want[k.resource.Resource] = mustList(t, client, metav1.ListOptions{}).Items
			}
			file := filepath.Join(t.TempDir(), "s.db")
			checkSnapshot(t, e, file, len(kindCases)*5)
			lost := map[string]string{}
			for _, k := range kindCases {
				lost[k.resource.Resource] = create(t, k, e, namespace, "lost")
			}
			checkStorage(t, e)

			if err := e.StopServer(e.Servers[0]); err != nil {
				t.Fatal(err)
			}
			tc.lose(t, e, file)
			if err := e.StartServer(t.Context(), e.Servers[0]); err != nil {
				t.Fatal(err)
			}
			for _, k := range kindCases {
				checkRestored(t, e, k, namespace, want[k.resource.Resource], lost[k.resource.Resource])
			}
			checkStorage(t, e)
		})
	}
}

// create creates an object and returns its resource version.
func create(t *testing.T, k kindCase, e *envtest.Environment, namespace, name string) string {
	t.Helper()
	created, err := k.client(t, e.Admin(t), namespace).Create(t.Context(), k.object(t, name), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created.GetResourceVersion()
}

// runStorage runs a storage command and returns its standard output. It fails the test if the
// command prints errors.
func runStorage(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, &stderr)
	}
	return string(out)
}

func checkSnapshot(t *testing.T, e *envtest.Environment, file string, objects int) {
	t.Helper()
	out := runStorage(t, e.StorageCommand(t.Context(), "snapshot", "--out="+file, "-o=json"))
	var got struct {
		Objects, Revision int
		SHA256            string
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sum, err := exec.CommandContext(t.Context(), "sha256sum", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got.Objects != objects || got.Revision <= objects || !strings.HasPrefix(string(sum), got.SHA256+" ") {
		t.Errorf("snapshot: got %s, want %d objects, more revisions and the SHA-256 %s", out, objects, sum)
	}
}

// checkStorage checks that the storage is healthy and can be defragmented while the server runs.
func checkStorage(t *testing.T, e *envtest.Environment) {
	t.Helper()
	if out := runStorage(t, e.StorageCommand(t.Context(), "status")); !strings.Contains(out, " leader ") ||
		!strings.Contains(out, " healthy ") {
		t.Errorf("status: got\n%swant a healthy leader", out)
	}
	if out := runStorage(t, e.StorageCommand(t.Context(), "defrag")); strings.Count(out, "\n") != 2 {
		t.Errorf("defrag: got\n%swant one member", out)
	}
}

// restore runs the restore, and checks that a second one is rejected.
func restore(t *testing.T, args ...string) {
	t.Helper()
	binary := shared.ServerBinary()
	args = append([]string{"storage", "restore"}, args...)
	runStorage(t, exec.CommandContext(t.Context(), binary, args...))
	if out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), " is not empty: it contains ") {
		t.Errorf("second restore: got %v\n%swant it refused", err, out)
	}
}

func loseEmbedded(t *testing.T, e *envtest.Environment, file string) {
	dir := filepath.Join(e.Dir, "data-1")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	restore(t, "--from="+file, "--data-dir="+dir)
}

func loseExternal(t *testing.T, e *envtest.Environment, file string) {
	member, err := e.StopEtcd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(member.DataDir); err != nil {
		t.Fatal(err)
	}
	restore(t, "--from="+file, "--etcd-data-dir="+member.DataDir, "--name="+member.Name,
		"--initial-cluster="+member.Name+"="+member.PeerURL, "--initial-advertise-peer-urls="+member.PeerURL)
	if err := e.StartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// checkRestored checks that the objects match the snapshot, and that clients learn that older
// resource versions are expired.
func checkRestored(t *testing.T, e *envtest.Environment, k kindCase, namespace string, want []unstructured.Unstructured,
	lost string) {
	t.Helper()
	client := k.client(t, e.Admin(t), namespace)
	var got *unstructured.UnstructuredList
	e.Eventually(t, "the API after the restore", envtest.WaitTimeout, func(ctx context.Context) (err error) {
		got, err = client.List(ctx, metav1.ListOptions{})
		return err
	})
	if diff := cmp.Diff(want, got.Items); diff != "" {
		t.Errorf("%s (-saved +restored):\n%s", k.resource.Resource, diff)
	}
	after := create(t, k, e, namespace, "lost")
	if compareRV(t, after, lost) <= 0 {
		t.Errorf("%s: first resource version after the restore: got %s, want more than the last before, %s",
			k.resource.Resource, after, lost)
	}
	// The resource version of an unchanged object, and that of a lost one.
	for _, old := range []string{got.Items[0].GetResourceVersion(), lost} {
		// Without the error, the watch would receive no event at all until it ends.
		w, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: old, TimeoutSeconds: ptr.To[int64](30)})
		if err != nil {
			t.Fatal(err)
		}
		event := <-w.ResultChan()
		if err := apierrors.FromObject(event.Object); event.Type != watch.Error || !apierrors.IsResourceExpired(err) {
			t.Errorf("%s: watch from resource version %s: got %s %v, want 410 Expired", k.resource.Resource, old,
				event.Type, err)
		}
		w.Stop()
	}
}

// TestEmbeddedStorageIsPrivate checks that another user of the machine can read the embedded etcd
// neither through its socket nor through its files.
func TestEmbeddedStorageIsPrivate(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	const nobody = 65534
	// The other user must be able to reach the data directory.
	if err := os.Chmod(shared.Dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(shared.Dir, 0o700) })
	cmd := shared.StorageCommand(t.Context(), "status")
	runAs(t, cmd, nobody)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out),
		"permission denied; check the directory, that the server runs and that you are its user") {
		t.Errorf("status as user %d: got %v, %swant permission denied", nobody, err, out)
	}
}

// runAs makes a command run as another user, who may not read the checkout.
func runAs(t *testing.T, cmd *exec.Cmd, uid uint32) {
	t.Helper()
	binary, err := os.Open(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = binary.Close() })
	cmd.ExtraFiles = append(cmd.ExtraFiles, binary)
	cmd.Path = "/proc/self/fd/3"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}
