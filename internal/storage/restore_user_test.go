// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRestoreAsUser checks that a user cannot restore from a snapshot that the user may not read,
// or into another user's directory, and that no other user can read the restored directory.
func TestRestoreAsUser(t *testing.T) {
	if from := os.Getenv("RESTORE_FROM"); from != "" { // in the process of the other user
		_, err := Restore(RestoreOptions{From: from, DataDir: os.Getenv("RESTORE_TO")})
		fmt.Println(err)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	const nobody = 65534
	dir := shortDir(t)
	target, stop := startEmbedded(t, shortDir(t))
	fill(t, target, 10)
	snapshot := filepath.Join(dir, "s.db")
	if _, err := target.Snapshot(t.Context(), SnapshotOptions{Out: snapshot}); err != nil {
		t.Fatal(err)
	}
	stop()
	program := filepath.Join(dir, "program")
	if data, err := os.ReadFile(os.Args[0]); err != nil {
		t.Fatal(err)
	} else if err := os.WriteFile(program, data, 0o755); err != nil { //nolint:gosec // the user runs it
		t.Fatal(err)
	}
	own, foreign := filepath.Join(dir, "own"), filepath.Join(dir, "foreign")
	if err := errors.Join(os.Mkdir(own, 0o700), os.Mkdir(foreign, 0o700), os.Chown(own, nobody, nobody),
		os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	restore := func(to string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestRestoreAsUser$")
		cmd.Env = append(os.Environ(), "RESTORE_FROM="+snapshot, "RESTORE_TO="+to)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("restore into %s: %v: %s", to, err, out)
		}
		said, _, _ := strings.Cut(string(out), "\n")
		return said
	}
	if said := restore(own); !strings.Contains(said, "permission denied") {
		t.Errorf("from a snapshot of root: got %q, want permission denied", said)
	}
	if err := os.Chown(snapshot, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if said := restore(foreign); !strings.Contains(said,
		"belongs to the user 0, not to this user, 65534") {
		t.Errorf("into a directory of root: got %q, want it refused", said)
	}
	if said := restore(own); said != "<nil>" {
		t.Fatalf("into an own directory: %s", said)
	}
	info, err := os.Stat(EtcdDir(own))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("what is restored: got the mode %v and %v, want nothing for others", info.Mode(), err)
	}
	if _, err := os.Stat(filepath.Join(EtcdDir(own), "member", "snap", "db")); err != nil {
		t.Error(err)
	}
}
