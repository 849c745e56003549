// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/snapshot"
	"go.uber.org/zap"
)

// SnapshotOptions specify where a snapshot is written.
type SnapshotOptions struct {
	// Out is the file. It gets mode 0600, since it contains all objects in plain text.
	Out string
	// Force replaces an existing file.
	Force bool
	// Progress receives a line every two seconds. If it is nil, no progress is written.
	Progress io.Writer
}

// Snapshot describes a completed snapshot.
type Snapshot struct {
	File
	Endpoint string `json:"endpoint"`
	// Version is the version of the etcd that created the snapshot; empty before 3.6. A restored
	// member needs the same minor version or the next one.
	Version string `json:"etcdVersion,omitempty"`
	Prefix  string `json:"prefix"`
	// Objects is the number of keys with the prefix at the snapshot's revision.
	Objects int64 `json:"objects"`
}

// Snapshot saves the state of one member, at one revision, to a file. The file appears under its
// name only when it is complete, synced to disk and verified.
func (t Target) Snapshot(ctx context.Context, o SnapshotOptions) (_ *Snapshot, err error) {
	if _, err := os.Lstat(o.Out); err == nil && !o.Force {
		return nil, existsError(o.Out)
	}
	member, err := t.newest(ctx)
	if err != nil {
		return nil, err
	}
	config, err := t.config(ctx, member.Endpoint)
	if err != nil {
		return nil, err
	}
	// The directory has mode 0700 and a unique name, so that two concurrent snapshots do not write
	// to one file. It is beside the file, because a rename works only within a file system.
	dir, err := os.MkdirTemp(filepath.Dir(o.Out), filepath.Base(o.Out)+".tmp-")
	if err != nil {
		return nil, fmt.Errorf("create a temporary directory for the snapshot: %w; choose another --out", err)
	}
	defer func() {
		if removeErr := os.RemoveAll(dir); err == nil && removeErr != nil {
			err = fmt.Errorf("remove the temporary directory of the snapshot: %w", removeErr)
		}
	}()
	s := &Snapshot{Endpoint: member.Endpoint, Prefix: t.Prefix}
	temporary := filepath.Join(dir, "db")
	stop := report(o.Progress, func() string {
		return fmt.Sprintf("downloading a snapshot from %s: %s of about %s", member.Endpoint, sizeOf(temporary+".part"),
			BytesText(member.Size))
	})
	s.Version, err = snapshot.SaveWithVersion(ctx, zap.NewNop(), config, temporary)
	stop()
	if err != nil {
		return nil, fmt.Errorf("download a snapshot from %s: %w; nothing was written to %s", member.Endpoint, err, o.Out)
	}
	file, err := Verify(temporary, o.Progress)
	if err != nil {
		return nil, err
	}
	s.File, s.Path = *file, o.Out
	if s.Objects, err = t.count(ctx, member.Endpoint, file.Revision); err != nil {
		return nil, err
	}
	return s, publish(temporary, o.Out, o.Force)
}

// newest returns the usable member that has applied the most. Among equals it prefers one that is
// not the leader, because the leader has more work.
func (t Target) newest(ctx context.Context) (*Member, error) {
	status, err := t.Status(ctx)
	if err != nil {
		return nil, err
	}
	var best *Member
	for i := range status.Members {
		m := &status.Members[i]
		// A member whose database is full can be saved, and may need to be.
		usable := m.Health == Healthy || len(m.Alarms) > 0
		if usable && !m.Learner && (best == nil || m.Revision > best.Revision || m.Revision == best.Revision &&
			best.Leader) {
			best = m
		}
	}
	if best == nil {
		return nil, fmt.Errorf(
			"no member can be read: %w; check --etcd-servers, --etcd-cafile, --etcd-certfile, --etcd-keyfile and "+
				"whether etcd runs",
			status.Problems())
	}
	return best, nil
}

// count returns the number of keys with the prefix at a revision.
func (t Target) count(ctx context.Context, endpoint string, revision int64) (int64, error) {
	client, err := t.client(ctx, endpoint)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	got, err := client.Get(ctx, t.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithRev(revision))
	if err != nil {
		return 0, fmt.Errorf("count the keys with the prefix %s: %w", t.Prefix, err)
	}
	return got.Count, nil
}

// publish gives a file its final name.
func publish(from, to string, replace bool) error {
	if replace {
		if err := os.Rename(from, to); err != nil {
			return fmt.Errorf("rename the snapshot: %w", err)
		}
	} else if err := os.Link(from, to); errors.Is(err, fs.ErrExist) {
		// The file appeared while the snapshot was fetched. A link does not replace it, but a
		// rename would.
		return existsError(to)
	} else if err != nil {
		return fmt.Errorf("rename the snapshot: %w; use --force on a file system without hard links", err)
	}
	return syncDir(filepath.Dir(to))
}

// syncDir writes the names in a directory to disk.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	defer dir.Close()
	if err := fileutil.Fsync(dir); err != nil {
		return fmt.Errorf("sync directory %s: %w", path, err)
	}
	return nil
}

func existsError(path string) error {
	return fmt.Errorf("--out %s already exists; choose another name, or replace the file with --force", path)
}

func sizeOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return BytesText(0)
	}
	return BytesText(info.Size())
}

// BytesText formats a size for people. 1 MB is 1000000 bytes, as in df -H and in the sizes that
// disk manufacturers state.
func BytesText(n int64) string { return humanize.Bytes(uint64(max(n, 0))) }
