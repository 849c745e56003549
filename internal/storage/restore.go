// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"syscall"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// DefaultRevisionBump follows etcd's advice for a snapshot that is up to a week old in a cluster
// with up to 1500 writes per second (https://etcd.io/docs/v3.6/op-guide/recovery/): 7 * 86400 *
// 1500 is 0.9e9 revisions.
const DefaultRevisionBump = 1_000_000_000

// RestoreOptions specify the snapshot and the target of a restore.
type RestoreOptions struct {
	// From is the snapshot file.
	From string
	// DataDir is the data directory of a server with an embedded etcd. It is used if Member is
	// zero.
	DataDir string
	// Member is a member of a new external cluster.
	Member RestoreMember
	// RevisionBump is the number of revisions that are skipped after the last one in the snapshot.
	// Revisions are the resource versions that clients see, and writes after the snapshot used
	// some. With the bump, all later revisions are greater than those. All older revisions are
	// marked as compacted, so that a watch from one of them gets 410 and must list again, instead
	// of missing events. 0 does neither.
	RevisionBump uint64
	// Progress receives a line every two seconds. If it is nil, no progress is written.
	Progress io.Writer
}

// RestoreMember is a member of a new cluster. The fields are named after etcd's flags.
type RestoreMember struct {
	DataDir                  string
	Name                     string
	InitialCluster           string
	InitialClusterToken      string
	InitialAdvertisePeerURLs []string
}

// Validate returns an error for each missing option, with the name of its flag.
func (o *RestoreOptions) Validate() []error {
	var errs []error
	missing := func(flag, reason string) { errs = append(errs, fmt.Errorf("--%s is required%s", flag, reason)) }
	if o.From == "" {
		missing("from", "")
	}
	if reflect.ValueOf(o.Member).IsZero() {
		if o.DataDir == "" {
			missing("data-dir", " for an embedded etcd, or --etcd-data-dir for a member of an external cluster")
		}
		return errs
	}
	const ofMember = " for a member of an external cluster"
	if o.Member.DataDir == "" {
		missing("etcd-data-dir", ofMember)
	}
	if o.Member.Name == "" {
		missing("name", ofMember)
	}
	if o.Member.InitialCluster == "" {
		missing("initial-cluster", ofMember)
	}
	if len(o.Member.InitialAdvertisePeerURLs) == 0 {
		missing("initial-advertise-peer-urls", ofMember)
	}
	return errs
}

// Restored describes a completed restore.
type Restored struct {
	File
	// DataDir is etcd's own data directory.
	DataDir string `json:"etcdDataDir"`
	Member  string `json:"member"`
	// NewRevision is the last revision in the restored database.
	NewRevision int64 `json:"newRevision"`
}

// Restore creates a data directory from a snapshot. It rejects a directory that already holds an
// etcd, a directory that a server uses, and an incomplete or damaged snapshot. It then changes no
// existing data. The restored data is complete or does not exist at all.
func Restore(o RestoreOptions) (_ *Restored, err error) {
	file, err := Verify(o.From, o.Progress)
	if err != nil {
		return nil, err
	}
	member := o.Member
	if member.DataDir == "" {
		lock, err := lockDataDir(o.DataDir)
		if err != nil {
			return nil, err
		}
		defer lock.Close()
		peer := EmbeddedPeerURL.String()
		member = RestoreMember{
			DataDir: EtcdDir(o.DataDir), Name: EmbeddedMember, InitialCluster: EmbeddedMember + "=" + peer,
			InitialAdvertisePeerURLs: []string{peer},
		}
	}
	// The default of etcd's own flag.
	member.InitialClusterToken = cmp.Or(member.InitialClusterToken, "etcd-cluster")
	if err := makeEmpty(member.DataDir); err != nil {
		return nil, err
	}
	revision, err := member.restore(o)
	if err != nil {
		return nil, fmt.Errorf("restore %s into %s: %w", o.From, member.DataDir, err)
	}
	return &Restored{*file, member.DataDir, member.Name, revision}, nil
}

// restore writes the data beside its final location and renames it, so that etcd does not use an
// interrupted restore.
func (m *RestoreMember) restore(o RestoreOptions) (revision int64, err error) {
	temporary, err := os.MkdirTemp(m.DataDir, "restoring-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	// The library exits the process when it cannot write. Its error log is then the only output.
	logs := zap.NewProductionConfig()
	logs.Level = zap.NewAtomicLevelAt(zap.ErrorLevel)
	logger, err := logs.Build()
	if err != nil {
		return 0, err
	}
	defer report(o.Progress, func() string { return "restoring into " + m.DataDir })()
	manager := snapshot.NewV3(logger)
	if err := manager.Restore(snapshot.RestoreConfig{
		SnapshotPath: o.From, OutputDataDir: temporary,
		Name: m.Name, PeerURLs: m.InitialAdvertisePeerURLs, InitialCluster: m.InitialCluster,
		InitialClusterToken: m.InitialClusterToken,
		RevisionBump:        o.RevisionBump, MarkCompacted: o.RevisionBump > 0,
	}); err != nil {
		return 0, err
	}
	restored, err := manager.Status(filepath.Join(temporary, "member", "snap", "db"))
	if err != nil {
		return 0, fmt.Errorf("read the restored database: %w", err)
	}
	if err := os.Rename(filepath.Join(temporary, "member"), filepath.Join(m.DataDir, "member")); err != nil {
		return 0, err
	}
	return restored.Revision, syncDir(m.DataDir)
}

// lockDataDir creates the server's data directory, and prevents servers from using it until the
// lock is closed.
func lockDataDir(dataDir string) (*fileutil.LockedFile, error) {
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return nil, fmt.Errorf("create --data-dir: %w; choose a directory that this user can write", err)
	}
	info, err := os.Stat(dataDir)
	if err != nil {
		return nil, fmt.Errorf("read --data-dir: %w", err)
	}
	// Files of another user would prevent the server from starting.
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int64(owner.Uid) != int64(os.Geteuid()) {
		return nil, fmt.Errorf("--data-dir %s belongs to the user %d, not to this user, %d; restore as the user that "+
			"runs the server", dataDir, owner.Uid, os.Geteuid())
	}
	lock, err := fileutil.TryLockFile(LockPath(dataDir), os.O_RDWR|os.O_CREATE, fileutil.PrivateFileMode)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, fmt.Errorf("--data-dir %s is in use by a server or another restore; stop it first", dataDir)
	} else if err != nil {
		return nil, fmt.Errorf("lock --data-dir: %w", err)
	}
	return lock, nil
}

// makeEmpty creates etcd's data directory with mode 0700. It rejects a directory that is not
// empty.
func makeEmpty(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create etcd's data directory: %w; choose a directory that this user can write", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read etcd's data directory: %w", err)
	}
	for _, entry := range entries {
		// ext4 creates this directory in the root of each volume.
		if entry.Name() != "lost+found" {
			return fmt.Errorf("%s is not empty: it contains %s; move it away, and delete it after you have checked the "+
				"restored objects", dir, filepath.Join(dir, entry.Name()))
		}
	}
	// etcd requires a directory that only its user can access.
	if err := os.Chmod(dir, fs.FileMode(fileutil.PrivateDirMode)); err != nil {
		return fmt.Errorf("set the mode of etcd's data directory: %w; it must belong to the user that runs etcd", err)
	}
	return nil
}
