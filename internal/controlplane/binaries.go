// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.com/extension-apiserver/internal/gobuild"
)

const (
	// assetsVariable names a directory with the binaries of kubebuilder's envtest.
	assetsVariable = "KUBEBUILDER_ASSETS"
	// cacheVariable names the directory in which programs are cached for all projects on a
	// machine.
	cacheVariable = "EXTENSION_APISERVER_CACHE"
)

// EnvtestPrograms are the programs of kubebuilder's envtest.
var EnvtestPrograms = []string{"etcd", "kube-apiserver", "kubectl"}

// envtestPrograms are the programs that are taken from KUBEBUILDER_ASSETS, where their versions
// are checked.
var envtestPrograms = append([]string{"kube-controller-manager"}, EnvtestPrograms...)

// Binaries locates the programs of a control plane: in the directory that KUBEBUILDER_ASSETS
// names, or in the cache if they do not exist there.
type Binaries struct {
	given string // empty without KUBEBUILDER_ASSETS
	cache string
	// progress receives lines while an operation takes long.
	progress io.Writer
}

// Find locates both directories, and checks the one that KUBEBUILDER_ASSETS names. It builds
// nothing.
func Find(ctx context.Context, progress io.Writer) (*Binaries, error) {
	b, err := findCache(progress)
	if err != nil {
		return nil, err
	}
	if b.given = os.Getenv(assetsVariable); b.given == "" {
		return b, nil
	}
	return b, b.checkGiven(ctx)
}

func findCache(progress io.Writer) (*Binaries, error) {
	if err := checkMinor(); err != nil {
		return nil, err
	}
	root := os.Getenv(cacheVariable)
	if root == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find the cache directory: %w; set %s to a directory", err, cacheVariable)
		}
		root = filepath.Join(user, "extension-apiserver")
	}
	if !filepath.IsAbs(root) {
		return nil, fmt.Errorf(
			"find the cache directory: %s is %q: must be an absolute path, because each test has its own directory",
			cacheVariable, root)
	}
	return &Binaries{cache: filepath.Join(root, "controlplane", Minor()+"-"+cacheKey()), progress: progress}, nil
}

// Path returns the path of a program, or the path that it will have when it is built.
func (b *Binaries) Path(name string) string {
	if given := filepath.Join(b.given, name); b.given != "" && slices.Contains(envtestPrograms, name) &&
		Executable(given) {
		return given
	}
	return filepath.Join(b.cache, name)
}

// Executable reports whether path is a file that can be executed.
func Executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// Has reports whether a program exists, and need not be built.
func (b *Binaries) Has(name string) bool { return len(b.missing(name)) == 0 }

// missing returns the given programs that do not exist. A program in the cache is complete and
// current: it gets its name last, and the name of the directory depends on everything that the
// program depends on.
func (b *Binaries) missing(names ...string) []program {
	return slices.DeleteFunc(slices.Clone(programs), func(p program) bool {
		return !slices.Contains(names, p.name) || Executable(b.Path(p.name))
	})
}

// checkGiven rejects a directory that lacks a program or has another version of it.
func (b *Binaries) checkGiven(ctx context.Context) error {
	var errs []error
	if !filepath.IsAbs(b.given) {
		errs = append(errs, errors.New("it is not an absolute path"))
	}
	for _, name := range envtestPrograms {
		errs = append(errs, checkProgram(ctx, filepath.Join(b.given, name)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("use %s=%s: %s; unset it, or install %s of Kubernetes %s there: setup-envtest use %[5]s",
			assetsVariable, b.given, strings.ReplaceAll(err.Error(), "\n", "; "),
			strings.Join(EnvtestPrograms, ", "), Minor())
	}
	return nil
}

// checkProgram checks that a program of KUBEBUILDER_ASSETS exists, if it is required, can be
// executed, and has the right version.
func checkProgram(ctx context.Context, path string) error {
	name := filepath.Base(path)
	if _, err := os.Stat(path); err != nil {
		if slices.Contains(EnvtestPrograms, name) {
			return fmt.Errorf("it has no %s", name)
		}
		return nil
	}
	if !Executable(path) {
		return fmt.Errorf("its %s is not executable", name)
	}
	want, args := Minor(), []string{"--version"}
	switch name {
	case "etcd":
		want = majorMinor(pinned(Minor(), "go.etcd.io/etcd/server/v3"))
	case "kubectl":
		args = []string{"version", "--client"}
	}
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if found := majorMinor(string(out)); err != nil || found != want {
		if !slices.Contains(EnvtestPrograms, name) {
			want += ", or be missing"
		}
		return fmt.Errorf("its %s has the version %s, and must have %s", name,
			cmp.Or(found, fmt.Sprintf("%q (%v)", out, err)), want)
	}
	return nil
}

var versionPattern = regexp.MustCompile(`\b(\d+\.\d+)\.\d+`)

// majorMinor returns the first two numbers of the first version in a text, or "" if there is none.
func majorMinor(text string) string {
	if found := versionPattern.FindStringSubmatch(strings.ReplaceAll(text, "v", "")); found != nil {
		return found[1]
	}
	return ""
}

// Ensure builds the given programs that do not exist. Only one process at a time builds in a
// cache.
func (b *Binaries) Ensure(ctx context.Context, names ...string) error {
	if len(b.missing(names...)) == 0 {
		return nil
	}
	if err := os.MkdirAll(b.cache, 0o700); err != nil {
		return b.notWritable(err)
	}
	lock, err := os.OpenFile(filepath.Join(b.cache, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return b.notWritable(err)
	}
	defer lock.Close() // releases the lock
	waiting := func() string {
		return "control plane: waiting for another process that builds it in " + b.cache
	}
	if err := gobuild.WithProgress(b.progress, waiting, func() error { return waitForLock(ctx, lock) }); err != nil {
		return err
	}
	// Check again, because the other process may have built them.
	missing := b.missing(names...)
	for len(missing) > 0 {
		n := slices.IndexFunc(missing, func(p program) bool { return p.set() != missing[0].set() })
		if n < 0 {
			n = len(missing)
		}
		if err := b.build(ctx, missing[:n]); err != nil {
			return err
		}
		missing = missing[n:]
	}
	return nil
}

func (b *Binaries) notWritable(err error) error {
	return fmt.Errorf("build the control plane: %w; %s", err,
		cmp.Or(gobuild.Hint(err.Error()), "set "+cacheVariable+" to a writable directory"))
}

func waitForLock(ctx context.Context, lock *os.File) error {
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the lock %s: %w", lock.Name(), context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Fill builds the named programs, by default all, unless they are in the cache, and returns the
// cache directory. It uses no program from KUBEBUILDER_ASSETS, but rejects an invalid
// KUBEBUILDER_ASSETS before it spends minutes on a build. It returns an error for an unknown name.
func Fill(ctx context.Context, progress io.Writer, names ...string) (dir string, err error) {
	b, err := Find(ctx, progress)
	if err != nil {
		return "", err
	}
	b.given = ""
	var all []string
	for _, p := range programs {
		all = append(all, p.name)
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return "", fmt.Errorf("unknown program %q; the programs are %s", name, strings.Join(all, ", "))
		}
	}
	if len(names) == 0 {
		names = all
	}
	return b.cache, b.Ensure(ctx, names...)
}
