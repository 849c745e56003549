// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// asSnapshot makes the test binary take a snapshot of the embedded etcd in the named directory, so
// that a test can kill it.
const asSnapshot = "STORAGE_TEST_SNAPSHOT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asSnapshot); dir != "" {
		_, err := Target{DataDir: dir}.Snapshot(context.Background(),
			SnapshotOptions{Out: filepath.Join(dir, "backup", "s.db")})
		panic(err) // it was not killed in time
	}
	os.Exit(m.Run())
}

// TestSnapshotInterrupted checks that an interrupted snapshot leaves no file under its name, and
// that the next one succeeds.
func TestSnapshotInterrupted(t *testing.T) {
	target, _ := startEmbedded(t, shortDir(t))
	client := connect(t, target)
	for range 4 {
		random := make([]byte, 512<<10)
		_, _ = rand.Read(random)
		put(t, client, "/registry/"+hex.EncodeToString(random[:8]), hex.EncodeToString(random))
	}
	for name, interrupt := range map[string]func(t *testing.T, dir string, halfway <-chan struct{}){
		"killed": func(t *testing.T, dir string, halfway <-chan struct{}) {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), asSnapshot+"="+dir)
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			wait(t, halfway)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
				t.Fatalf("snapshot ended: %v, want it killed", err)
			}
			if left, err := filepath.Glob(filepath.Join(dir, "backup", "s.db.tmp-*", "db.part")); err != nil ||
				len(left) != 1 {
				t.Errorf("what a killed snapshot left: got %v, want half a file in a directory of its own: it was "+
					"not killed halfway", left)
			}
		},
		"cancelled": func(t *testing.T, dir string, halfway <-chan struct{}) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := Target{DataDir: dir}.Snapshot(ctx, SnapshotOptions{Out: filepath.Join(dir, "backup", "s.db")})
				ended <- err
			}()
			wait(t, halfway)
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) ||
				!strings.Contains(err.Error(), "nothing was written to") {
				t.Errorf("got error %v, want that it was cancelled and nothing written", err)
			}
			checkNames(t, filepath.Join(dir, "backup"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			out := filepath.Join(dir, "backup", "s.db")
			mkdir(t, filepath.Dir(out))
			interrupt(t, dir, stallingProxy(t, SocketPath(dir), SocketPath(target.DataDir)))
			if _, err := os.Lstat(out); !os.IsNotExist(err) {
				t.Errorf("file after the interruption: got %v, want none", err)
			}
			if _, err := target.Snapshot(t.Context(), SnapshotOptions{Out: out}); err != nil {
				t.Errorf("next snapshot: %v", err)
			}
		})
	}
}

func wait(t *testing.T, halfway <-chan struct{}) {
	t.Helper()
	select {
	case <-halfway:
	case <-time.After(patience):
		t.Fatal("the snapshot does not get as far as its middle")
	}
}

// stallingProxy forwards connections to an etcd, but at most 1 MiB from the etcd on each
// connection. It closes the channel when it stalls a connection.
func stallingProxy(t *testing.T, at, to string) <-chan struct{} {
	t.Helper()
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	halfway := make(chan struct{})
	once := sync.OnceFunc(func() { close(halfway) })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
			go func() {
				if n, err := io.CopyN(client, server, 1<<20); err == nil && n == 1<<20 {
					once()
				} else {
					_ = client.Close()
				}
			}()
		}
	}()
	return halfway
}
