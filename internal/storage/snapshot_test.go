// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestSnapshot checks that only the owner can access the file, that its description is correct,
// and that no other file is left.
func TestSnapshot(t *testing.T) {
	target, _ := startEmbedded(t, shortDir(t))
	client := fill(t, target, 10)
	if _, err := client.Delete(t.Context(), "/registry/0"); err != nil {
		t.Fatal(err)
	}
	last := put(t, client, "/registry/1", "again")
	backups := t.TempDir()
	out := filepath.Join(backups, "s.db")
	got, err := target.Snapshot(t.Context(), SnapshotOptions{Out: out})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	want := &Snapshot{
		File: File{out, last, 11, int64(len(data)), fmt.Sprintf("%x", sha256.Sum256(data))}, Endpoint: "unix://" +
			SocketPath(target.DataDir),
		Version: "3.7.0", Prefix: "/registry/", Objects: 9,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("snapshot (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the file: got %v (%v), want 0600", info.Mode(), err)
	}
	checkNames(t, backups, "s.db")
}

func checkNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names in %s (-want +got):\n%s", dir, diff)
	}
}

// TestSnapshotReplaces checks that a file is replaced only on request, whether it existed before
// or appeared meanwhile.
func TestSnapshotReplaces(t *testing.T) {
	target, _ := startEmbedded(t, shortDir(t))
	dir := t.TempDir()
	out := filepath.Join(dir, "s.db")
	if err := os.WriteFile(out, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "--out " + out + " already exists; choose another name, or replace the file with --force"
	fresh := filepath.Join(dir, "fresh")
	if err := os.WriteFile(fresh, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, before := target.Snapshot(t.Context(), SnapshotOptions{Out: out})
	for name, err := range map[string]error{"before": before, "meanwhile": publish(fresh, out, false)} {
		if err == nil || err.Error() != want {
			t.Errorf("file that was there %s: got error %v, want %s", name, err, want)
		}
		if data, err := os.ReadFile(out); err != nil || string(data) != "old" {
			t.Errorf("file that was there %s: got %q (%v), want it as it was", name, data, err)
		}
	}
	if _, err := target.Snapshot(t.Context(), SnapshotOptions{Out: out, Force: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(out, nil); err != nil {
		t.Errorf("file that was replaced: %v", err)
	}
	checkNames(t, dir, "fresh", "s.db")
}

// TestSnapshotUnderWrites checks that the snapshot shows a single moment. Each write changes two
// keys at once and follows the previous write.
func TestSnapshotUnderWrites(t *testing.T) {
	target, _ := startEmbedded(t, shortDir(t))
	client := fill(t, target, 200)
	ctx, cancel := context.WithCancel(t.Context())
	begun, ended := make(chan struct{}), make(chan int)
	go func() {
		i := 0
		for ; ctx.Err() == nil; i++ {
			if i == 100 {
				close(begun)
			}
			_, _ = client.Txn(ctx).Then(clientv3.OpPut("left", strconv.Itoa(i)),
				clientv3.OpPut("right", strconv.Itoa(i)), clientv3.OpPut(fmt.Sprintf("n/%06d", i), "")).Commit()
		}
		ended <- i
	}()
	<-begun
	out := filepath.Join(t.TempDir(), "s.db")
	_, err := target.Snapshot(t.Context(), SnapshotOptions{Out: out})
	cancel()
	written := <-ended
	if err != nil {
		t.Fatal(err)
	}
	restored := shortDir(t)
	if _, err := Restore(RestoreOptions{From: out, DataDir: restored}); err != nil {
		t.Fatal(err)
	}
	target, _ = startEmbedded(t, restored)
	client = connect(t, target)
	left, right := value(t, client, "left"), value(t, client, "right")
	all, err := client.Get(t.Context(), "n/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	last := fmt.Sprintf("n/%06d", len(all.Kvs)-1)
	if string(all.Kvs[len(all.Kvs)-1].Key) != last || left != right || strconv.Itoa(len(all.Kvs)-1) != left {
		t.Errorf("after %d writes: got left %s, right %s, %d numbers up to %s; want all of one write", written, left,
			right, len(all.Kvs), all.Kvs[len(all.Kvs)-1].Key)
	}
	if len(all.Kvs) < 100 {
		t.Errorf("got %d numbers, want at least the 100 that were written before the snapshot", len(all.Kvs))
	}
}

func value(t *testing.T, client *clientv3.Client, key string) string {
	t.Helper()
	got, err := client.Get(t.Context(), key)
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("read %s: got %v, %v, want one value", key, got, err)
	}
	return string(got.Kvs[0].Value)
}

// TestSnapshotWithoutEtcd checks that the error contains the remedy if no etcd can be reached.
func TestSnapshotWithoutEtcd(t *testing.T) {
	external := Target{}
	external.Transport.ServerList = []string{"http://127.0.0.1:1"}
	for name, tc := range map[string]struct {
		target Target
		want   []string
	}{
		"stopped server": {Target{DataDir: t.TempDir()}, []string{
			"connect to the embedded etcd in --data-dir ", "no such file", "that the server runs",
		}},
		"external": {external, []string{"no member can be read: ", "http://127.0.0.1:1",
			"connection refused", "check --etcd-servers"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tc.target.Snapshot(t.Context(), SnapshotOptions{Out: filepath.Join(t.TempDir(), "s.db")})
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got error %v, want it to contain %q", err, want)
				}
			}
		})
	}
}
