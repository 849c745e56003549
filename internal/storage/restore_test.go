// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestRestore checks that all keys are restored with their revisions. With the bump, no write
// after the snapshot shares its revision with a write after the restore, and a watch from before
// gets an error.
func TestRestore(t *testing.T) {
	target, stop := startEmbedded(t, shortDir(t))
	client := fill(t, target, 10)
	out := filepath.Join(t.TempDir(), "s.db")
	saved, err := target.Snapshot(t.Context(), SnapshotOptions{Out: out})
	if err != nil {
		t.Fatal(err)
	}
	want := allKeys(t, client)
	lost := put(t, client, "/registry/0", "written after the snapshot")
	stop()
	for _, bump := range []uint64{0, DefaultRevisionBump} {
		t.Run(fmt.Sprint(bump), func(t *testing.T) {
			dir := shortDir(t)
			restored, err := Restore(RestoreOptions{From: out, DataDir: dir, RevisionBump: bump})
			if err != nil {
				t.Fatal(err)
			}
			wantRestored := &Restored{saved.File, EtcdDir(dir), EmbeddedMember, saved.Revision + int64(bump)} //nolint:gosec // a constant
			if diff := cmp.Diff(wantRestored, restored); diff != "" {
				t.Errorf("report of the restore (-want +got):\n%s", diff)
			}
			target, _ := startEmbedded(t, dir)
			client := connect(t, target)
			if diff := cmp.Diff(want, allKeys(t, client), cmpopts.IgnoreUnexported(mvccpb.KeyValue{})); diff != "" {
				t.Errorf("keys (-before +after):\n%s", diff)
			}
			if got := put(t, client, "/registry/0", "written after the restore"); (got > lost) != (bump > 0) {
				t.Errorf("first revision after the restore: got %d, of the last write before %d, want it greater "+
					"only with a bump", got, lost)
			}
			response := <-client.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(saved.Revision))
			if expired := errors.Is(response.Err(), rpctypes.ErrCompacted); expired != (bump > 0) {
				t.Errorf("watch from the revision of the snapshot: got error %v, want %q only with a bump",
					response.Err(), rpctypes.ErrCompacted)
			}
		})
	}
}

func allKeys(t *testing.T, client *clientv3.Client) []*mvccpb.KeyValue {
	t.Helper()
	got, err := client.Get(t.Context(), "\x00", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	return got.Kvs
}

// TestRejectedRestoreChangesNothing checks that a rejected restore changes no existing files, with
// a valid and with an invalid snapshot.
func TestRejectedRestoreChangesNothing(t *testing.T) {
	target, stop := startEmbedded(t, shortDir(t))
	fill(t, target, 1)
	good := filepath.Join(t.TempDir(), "s.db")
	if _, err := target.Snapshot(t.Context(), SnapshotOptions{Out: good}); err != nil {
		t.Fatal(err)
	}
	stop()
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte{}, data...)
	flipped[len(flipped)/2] ^= 1
	for _, tc := range []struct {
		name    string
		from    []byte // the snapshot; nil means the valid one
		prepare func(t *testing.T, dir string)
		want    string
	}{
		{"an etcd in it", nil, func(t *testing.T, dir string) { mkdir(t, filepath.Join(EtcdDir(dir), "member")) },
			"/etcd is not empty: it contains "},
		{"a restore that was interrupted", nil, func(t *testing.T,
			dir string) {
			mkdir(t, filepath.Join(EtcdDir(dir), "restoring-1"))
		},
			"/etcd/restoring-1; move it away"},
		{"a server that runs on it", nil, func(t *testing.T, dir string) {
			lock, err := lockDataDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lock.Close() })
		}, " is in use by a server or another restore; stop it first"},
		{"another user's", nil, func(t *testing.T, dir string) {
			if err := os.Chown(dir, 65534, -1); errors.Is(err, fs.ErrPermission) {
				t.Skip("only root can give a directory away")
			} else if err != nil {
				t.Fatal(err)
			}
		}, "belongs to the user 65534, not to this user, "},
		{"snapshot with another bit", flipped, nil, "is damaged: the SHA-256 at its end is "},
		{"snapshot cut off in a page", data[:len(data)-100], nil, "is not a snapshot, or is truncated"},
		{"snapshot cut off after a page", data[:len(data)-512], nil, "is damaged: the SHA-256"},
		{"snapshot with more behind", append(append([]byte{}, data...), make([]byte, 512)...), nil,
			"is damaged: the SHA-256"},
		{"database without hash", data[:len(data)-32], nil, "is not a snapshot, or is truncated"},
		{"empty file", []byte{}, nil, "the file has 0 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, from := shortDir(t), good
			if tc.from != nil {
				from = filepath.Join(t.TempDir(), "bad.db")
				if err := os.WriteFile(from, tc.from, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tc.prepare != nil {
				tc.prepare(t, dir)
			}
			before := tree(t, dir)
			_, err := Restore(RestoreOptions{From: from, DataDir: dir})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want it to contain %q", err, tc.want)
			}
			if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
				t.Errorf("files (-before +after):\n%s", diff)
			}
		})
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// tree lists the paths in a directory, except the lock file.
func tree(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if path != LockPath(dir) {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestRestoreVolume checks that the root of an ext4 volume counts as empty although it contains a
// directory of the file system.
func TestRestoreVolume(t *testing.T) {
	target, _ := startEmbedded(t, shortDir(t))
	fill(t, target, 1)
	out := filepath.Join(t.TempDir(), "s.db")
	if _, err := target.Snapshot(t.Context(), SnapshotOptions{Out: out}); err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	mkdir(t, filepath.Join(dir, "lost+found"))
	member := RestoreMember{DataDir: dir, Name: "a", InitialCluster: "b=http://b:2380",
		InitialAdvertisePeerURLs: []string{"http://a:2380"}}
	if _, err := Restore(RestoreOptions{From: out, Member: member}); err == nil {
		t.Error("member that is not in the cluster: got no error")
	}
	checkNames(t, dir, "lost+found")
	member.InitialCluster = "a=http://a:2380"
	if _, err := Restore(RestoreOptions{From: out, Member: member}); err != nil {
		t.Fatal(err)
	}
	checkNames(t, dir, "lost+found", "member")
}
