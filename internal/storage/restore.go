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

// DefaultRevisionBump is etcd's advice for a snapshot that is up to a week old in a cluster with up to 1500 writes a
// second (https://etcd.io/docs/v3.6/op-guide/recovery/): 7 * 86400 * 1500 are 0.9e9 revisions.
const DefaultRevisionBump = 1_000_000_000

// RestoreOptions say what is restored, and where.
type RestoreOptions struct {
	// From is the file with the snapshot.
	From string
	// DataDir is the data directory of a server with an embedded etcd; it counts where Member is zero.
	DataDir string
	// Member is a member of a new external cluster.
	Member RestoreMember
	// RevisionBump is how many revisions are left out after the last in the snapshot. Revisions are the resource
	// versions that clients saw. What was written after the snapshot had some too; the bump makes all that come later
	// greater than those, and all older are marked as compacted, so that a watch from one of them is told to list anew
	// (410) instead of missing events. 0 does neither.
	RevisionBump uint64
	// Progress gets a line every two seconds; nil means none.
	Progress io.Writer
}

// RestoreMember is a member of a new cluster; the names are those of etcd's flags.
type RestoreMember struct {
	DataDir                  string
	Name                     string
	InitialCluster           string
	InitialClusterToken      string
	InitialAdvertisePeerURLs []string
}

// Validate returns all that is missing, by the names of the flags.
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

// Restored is what was restored.
type Restored struct {
	File
	// DataDir is etcd's own.
	DataDir string `json:"etcdDataDir"`
	Member  string `json:"member"`
	// NewRevision is the last revision in the restored database.
	NewRevision int64 `json:"newRevision"`
}

// Restore makes a data directory of a snapshot. It refuses one that holds an etcd already, one that a server uses, and
// a snapshot that is not whole; then nothing is changed. The directory is complete or not there at all.
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

// restore writes beside the place that etcd looks at, and renames: an interrupted restore is not taken for an etcd with
// little in it.
func (m *RestoreMember) restore(o RestoreOptions) (revision int64, err error) {
	temporary, err := os.MkdirTemp(m.DataDir, "restoring-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	// The library ends the process when it cannot write; what it logs then is all that there is.
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

// lockDataDir makes the server's data directory and keeps servers out of it until the lock is closed.
func lockDataDir(dataDir string) (*fileutil.LockedFile, error) {
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return nil, fmt.Errorf("create --data-dir: %w; choose a directory that this user can write", err)
	}
	info, err := os.Stat(dataDir)
	if err != nil {
		return nil, fmt.Errorf("read --data-dir: %w", err)
	}
	// Files of another user would keep the server from starting.
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

// makeEmpty makes etcd's data directory, with mode 0700, and refuses one that holds anything.
func makeEmpty(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create etcd's data directory: %w; choose a directory that this user can write", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read etcd's data directory: %w", err)
	}
	for _, entry := range entries {
		// ext4 puts this one into the root of each volume.
		if entry.Name() != "lost+found" {
			return fmt.Errorf("%s is not empty: it contains %s; move it away, and delete it after you have checked the "+
				"restored objects", dir, filepath.Join(dir, entry.Name()))
		}
	}
	// etcd wants it to be its own.
	if err := os.Chmod(dir, fs.FileMode(fileutil.PrivateDirMode)); err != nil {
		return fmt.Errorf("set the mode of etcd's data directory: %w; it must belong to the user that runs etcd", err)
	}
	return nil
}
