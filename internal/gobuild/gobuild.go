// SPDX-License-Identifier: Apache-2.0

// Package gobuild reports the progress of a go command that compiles for minutes, and a remedy if
// it fails. It imports only the standard library, so that a command that uses it is built within
// seconds on a machine with empty caches.
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

// Flags are also in GOFLAGS of the Makefiles of the kit and of projects, which explain them.
// Packages that a server, the programs of a control plane and the tools of a project have in
// common are compiled once, if all use these flags and CGO_ENABLED=0.
const Flags = "-trimpath -gcflags=all=-dwarf=false"

// Progress is printed after FirstWord, and then every otherWords.
const (
	FirstWord  = 2 * time.Second
	otherWords = 10 * time.Second
)

// WithProgress calls f, and prints the result of doing while f runs.
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

// Log counts the packages that go build -v and go run -v print, which are the compiled packages,
// and keeps all other output.
type Log struct {
	mu       sync.Mutex
	partial  []byte
	compiled int
	total    int // number of packages to compile; 0 until it is known
	loaded   int
	other    []string
}

// secondsPerPackage is how long one CPU takes to compile a package of a control plane, measured:
// 2,350 packages in 550 s on 2 CPUs.
const secondsPerPackage = 0.47

// Stale returns the arguments with which go list prints those of the packages and their
// dependencies that must be compiled.
func Stale(packages ...string) []string {
	return append([]string{"-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, packages...)
}

// CountStale counts the packages that must still be compiled, with a go list command with the
// arguments of Stale, which downloads their modules. It reports whether there are more than 100.
// If it cannot count them, it returns false, and the build reports the reason.
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

// WithProgress calls f, which builds, and prints the progress while f runs. list is a go list
// command with the arguments of Stale. It is run if the build takes longer than FirstWord.
func (l *Log) WithProgress(to io.Writer, what string, list *exec.Cmd, run func(*exec.Cmd) error, f func() error) error {
	counted := sync.OnceFunc(func() { l.CountStale(list, run) })
	return WithProgress(to, func() string {
		counted()
		return strings.TrimSuffix("building "+what+": "+l.String(), ": ")
	}, f)
}

// Estimate describes how long the build will take.
func (l *Log) Estimate() string {
	minutes := float64(l.total) * secondsPerPackage / float64(runtime.GOMAXPROCS(0)) / 60
	return fmt.Sprintf("%d packages, about %.0f minutes with %d CPUs", l.total, math.Ceil(minutes),
		runtime.GOMAXPROCS(0))
}

// Write implements io.Writer for the output of go, in any pieces.
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

// String describes the progress. It returns "" while the build only links.
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

// Failure returns all output that is not progress. If the output shows that the machine lacks
// something, Failure returns its last lines and a hint.
func (l *Log) Failure() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := strings.Join(l.other, "\n")
	if hint := Hint(said); hint != "" {
		return strings.Join(l.other[max(0, len(l.other)-5):], "; ") + "; " + hint
	}
	return said
}

// Hint returns a remedy if an error shows that the machine lacks something, or "".
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
