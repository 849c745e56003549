// SPDX-License-Identifier: Apache-2.0

// Package gobuild tells how far a go command is that compiles for minutes, and what helps when it fails. It imports the
// standard library alone, so that a command that uses it is there within seconds on a machine with empty caches.
package gobuild

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Flags are in GOFLAGS of the Makefiles of the kit and of projects, which say why. What a server, the programs of a
// control plane and the tools of a project have in common is compiled once, if all have these flags and CGO_ENABLED=0.
const Flags = "-trimpath -gcflags=all=-dwarf=false"

// Progress is printed after FirstWord, and every otherWords from then on.
const (
	FirstWord  = 2 * time.Second
	otherWords = 10 * time.Second
)

// WithProgress calls f and prints meanwhile what is done.
func WithProgress(to io.Writer, doing func() string, f func() error) error {
	done := make(chan struct{})
	var telling sync.WaitGroup
	defer telling.Wait()
	defer close(done)
	telling.Go(func() {
		for wait := FirstWord; ; wait = otherWords {
			select {
			case <-done:
				return
			case <-time.After(wait):
				fmt.Fprintln(to, doing())
			}
		}
	})
	return f()
}

// Log counts the packages that go build -v and go run -v name, which are those that they compile, and keeps what else
// they say.
type Log struct {
	mu       sync.Mutex
	partial  []byte
	compiled int
	total    int // of what must be compiled; 0 until that is known
	loaded   int
	other    []string
}

// secondsPerPackage is what one CPU takes to compile a package of a control plane, measured: 2,350 in 550 s on 2 CPUs.
const secondsPerPackage = 0.47

// Stale are the arguments with which go list prints those of the packages, and of what they import, that must be
// compiled.
func Stale(packages ...string) []string {
	return append([]string{"-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, packages...)
}

// CountStale counts with such a go list what must still be compiled, for which its modules are downloaded, and tells
// whether it is much. Where it cannot, the build says why.
func (l *Log) CountStale(list *exec.Cmd, run func(*exec.Cmd) error) bool {
	var stdout bytes.Buffer
	list.Stdout, list.Stderr = &stdout, l
	if err := run(list); err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total = l.compiled + len(strings.Fields(stdout.String()))
	return l.total > 100
}

// WithProgress calls f, which builds, and prints meanwhile how far it is. list is a go list with the arguments Stale,
// run when the build takes longer.
func (l *Log) WithProgress(to io.Writer, what string, list *exec.Cmd, run func(*exec.Cmd) error, f func() error) error {
	counted := sync.OnceFunc(func() { l.CountStale(list, run) })
	return WithProgress(to, func() string {
		counted()
		return strings.TrimSuffix("building "+what+": "+l.String(), ": ")
	}, f)
}

// Estimate says how long the build will take.
func (l *Log) Estimate() string {
	minutes := float64(l.total) * secondsPerPackage / float64(runtime.GOMAXPROCS(0)) / 60
	return fmt.Sprintf("%d packages, about %.0f minutes with %d CPUs", l.total, math.Ceil(minutes),
		runtime.GOMAXPROCS(0))
}

// Write takes what go prints, in any pieces.
func (l *Log) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, data...)
	for {
		line, rest, whole := bytes.Cut(l.partial, []byte("\n"))
		if !whole {
			return len(data), nil
		}
		l.partial = rest
		switch text := string(line); {
		case strings.HasPrefix(text, "go: downloading "):
			l.loaded++
		case !strings.ContainsAny(text, " :"):
			l.compiled++
		default:
			l.other = append(l.other, text)
		}
	}
}

// String says how far it is; nothing when it only links.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.total > 0 && l.compiled > 0:
		return fmt.Sprintf("%d of %d packages compiled", min(l.compiled, l.total), l.total)
	case l.loaded > 0:
		return fmt.Sprintf("%d modules downloaded", l.loaded)
	}
	return ""
}

// Failure is all that is no progress; where go says that the machine lacks something, its last lines and what that is.
func (l *Log) Failure() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := strings.Join(l.other, "\n")
	if hint := Hint(said); hint != "" {
		return strings.Join(l.other[max(0, len(l.other)-5):], "; ") + "; " + hint
	}
	return said
}

// Hint is what helps where an error says that the machine lacks something, or empty.
func Hint(said string) string {
	for _, space := range []string{"no space left on device", "quota exceeded"} {
		if strings.Contains(said, space) {
			return "the build needs 4 GB once, in the directories of go env GOCACHE GOMODCACHE GOTMPDIR, and 0.5 GB for " +
				"the control plane"
		}
	}
	for _, network := range []string{"GOPROXY", "dial tcp", "proxyconnect", "i/o timeout", "TLS handshake timeout",
		"connection reset by peer", `": unexpected EOF`, `": EOF`} {
		if strings.Contains(said, network) {
			return "the build needs the Go module proxy once: check GOPROXY and the network, and try again; " +
				"downloaded modules are kept"
		}
	}
	return ""
}
