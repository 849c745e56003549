// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"example.com/extension-apiserver/internal/controlplane"
)

// Environment is a running control plane with extension API servers behind it.
type Environment struct {
	// Dir contains state, logs and kubeconfigs.
	Dir string
	// KubeAPIServers and Servers are the running servers, at least one of each.
	KubeAPIServers []*KubeAPIServer
	Servers        []*Server

	options   Options
	binaries  *controlplane.Binaries
	server    string // the executable of the extension API servers
	ctx       context.Context
	fail      context.CancelCauseFunc
	lock      *os.File
	ports     ports
	processes processes
	pki       *pki
	lan       *lan  // nil on loopback
	node      *host // with konnectivity: the host of agents and extension API servers
	etcd      *etcd
	external  *etcd        // the etcd of the extension API servers; nil if it is embedded
	noStorage bool         // the extension API servers have no etcd
	agents    atomic.Int32 // the number of konnectivity agents that were created
	// users contains the kubeconfigs that were created.
	users struct {
		sync.Mutex
		made sets.Set[string]
	}
	controllers controllers
	// serverKubeconfig is the kubeconfig of the extension API servers.
	serverKubeconfig string
	stopOnce         sync.Once
	stopErr          error
}

// Start starts an environment and returns when the API is registered and a write to it succeeds.
// If Start fails or ctx is done before it returns, it stops everything that it has started.
// Otherwise the caller must call Stop.
func Start(ctx context.Context, options Options) (_ *Environment, err error) {
	if err := options.complete(); err != nil {
		return nil, err
	}
	e := &Environment{Dir: options.Dir, options: options}
	e.users.made = sets.New[string]()
	e.controllers.built = make(chan struct{})
	e.ctx, e.fail = context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(e.withDiskSpace(withFailure(err, e.Failure())), e.Stop())
		}
	}()
	if err := e.prepare(); err != nil {
		return nil, err
	}
	if err := e.step("certificates", func() error {
		e.pki, err = newPKI(e.ctx, filepath.Join(e.Dir, "pki"), options.agentServerNames())
		return err
	}); err != nil {
		return nil, err
	}
	if err := e.startControlPlane(); err != nil {
		return nil, err
	}
	if err := e.startServers(); err != nil {
		return nil, err
	}
	if !options.Unregistered {
		if err := e.step("registration of the API", func() error { return e.Register(e.ctx) }); err != nil {
			return nil, err
		}
	}
	e.buildControllers()
	return e, nil
}

// withFailure adds the failed process to the error of a step, because the error itself, such as
// that kubectl was killed, does not show the cause.
func withFailure(err, failure error) error {
	if failure == nil || errors.Is(failure, context.Canceled) || errors.Is(err, failure) {
		return err
	}
	return fmt.Errorf("%w\nwhich ended: %w", failure, err)
}

// withDiskSpace adds a hint if the disk is full. It checks the file system first, because other
// resources can also report that no space is left.
func (e *Environment) withDiskSpace(err error) error {
	const needed = 512 // MiB; 126 MiB were used
	dir := cmp.Or(e.Dir, os.TempDir())
	var fs syscall.Statfs_t
	if !strings.Contains(err.Error(), syscall.ENOSPC.Error()) || syscall.Statfs(dir, &fs) != nil {
		return err
	}
	if left := fs.Bavail * uint64(fs.Bsize) >> 20; left < needed { //nolint:gosec // no size is negative
		return fmt.Errorf("%w\nthe state needs %d MiB in %s, which has %d MiB; free some space, or use another directory",
			err, needed, dir, left)
	}
	return err
}

// prepare creates the directories and finds or builds the programs.
func (e *Environment) prepare() (err error) {
	if e.Dir == "" {
		// t.TempDir is not used, because the path of a Unix socket in it can have at most 107
		// bytes.
		if e.Dir, err = os.MkdirTemp("", "apienv-"); err != nil {
			return fmt.Errorf("create state directory: %w", err)
		}
	}
	if e.Dir, err = filepath.Abs(e.Dir); err != nil {
		return err
	}
	e.processes = processes{logDir: filepath.Join(e.Dir, "logs"), fail: e.fail}
	for _, dir := range []string{e.Dir, e.processes.logDir, filepath.Join(e.Dir, "users")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create state directory: %w", err)
		}
	}
	if e.lock, err = os.OpenFile(filepath.Join(e.Dir, ".env.lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return fmt.Errorf("lock state directory: %w", err)
	}
	if err := syscall.Flock(int(e.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("lock state directory %s: it is in use by another run; stop the other run first", e.Dir)
	}
	if e.options.Network == ClusterIPRouting {
		if _, err := exec.LookPath("nft"); err != nil {
			return fmt.Errorf("find nft, which kube-proxy runs: %w; install nftables", err)
		}
	}
	if e.options.Network != Loopback { // before a build that can take minutes
		if e.lan, err = newLAN(); err != nil {
			return err
		}
	}
	return e.findPrograms()
}

// findPrograms builds the extension API server and the missing programs that the environment
// needs to start. It downloads the modules of the latter concurrently.
func (e *Environment) findPrograms() (err error) {
	if e.binaries, err = controlplane.Find(e.ctx, e.options.buildProgress()); err != nil {
		return err
	}
	names := slices.Clone(controlplane.EnvtestPrograms)
	if e.options.Network == ClusterIPRouting {
		names = append(names, "kube-proxy")
	}
	if len(e.options.Tunnels) > 0 {
		names = append(names, "proxy-server", "proxy-agent")
	}
	var downloading sync.WaitGroup
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	downloading.Go(func() { e.binaries.Download(ctx, names...) })
	if err = e.findServer(); err != nil {
		stop()
	}
	downloading.Wait()
	if err != nil {
		return err
	}
	return e.binaries.Ensure(e.ctx, names...)
}

// findServer builds the extension API server unless the options set the path of a program.
func (e *Environment) findServer() (err error) {
	if e.server = e.options.Server; filepath.IsAbs(e.server) {
		if !controlplane.Executable(e.server) {
			return fmt.Errorf("find the server: Options.Server is %s, which is not an executable file", e.server)
		}
		return nil
	}
	e.server, err = buildWith(e.ctx, e.options.Server, e.options.buildProgress())
	return err
}

// Binary returns the path of a program of the control plane, such as kubectl. A program that the
// environment did not start may not have been built.
func (e *Environment) Binary(name string) string { return e.binaries.Path(name) }

// ServerBinary returns the path of the extension API server's program.
func (e *Environment) ServerBinary() string { return e.server }

// step runs f and prints its duration as one line, because builds may print concurrently.
func (e *Environment) step(what string, f func() error) error {
	began := time.Now()
	if err := f(); err != nil {
		fmt.Fprintf(e.options.stepProgress(), "  %-42sfailed\n", what)
		return fmt.Errorf("%s: %w", what, err)
	}
	fmt.Fprintf(e.options.stepProgress(), "  %-42s%5.1fs\n", what, time.Since(began).Seconds())
	return nil
}

// startControlPlane starts the cluster: hosts, etcd, the kube-apiservers, the controllers and,
// for ClusterIPRouting, kube-proxy.
func (e *Environment) startControlPlane() error {
	hosts, err := e.controlPlaneHosts()
	if err != nil {
		return err
	}
	first := hosts[0]
	if err := e.step("etcd", func() error { e.etcd, err = e.startEtcd(e.ctx, first, "etcd"); return err }); err != nil {
		return err
	}
	for i, h := range hosts {
		name := "kube-apiserver"
		if i > 0 {
			name = fmt.Sprintf("kube-apiserver-%d", i+1)
		}
		if err := e.step(name, func() error {
			k, err := e.startKubeAPIServer(e.ctx, h, name)
			e.KubeAPIServers = append(e.KubeAPIServers, k)
			return err
		}); err != nil {
			return err
		}
	}
	if err := e.startControllers(); err != nil {
		return err
	}
	if len(e.options.Tunnels) > 0 {
		if err := e.step("konnectivity", func() error { return e.startKonnectivity(e.ctx) }); err != nil {
			return err
		}
		// With konnectivity, kube-proxy must run where the agents connect to ClusterIPs.
		hosts = []*host{e.node}
	}
	if e.options.Network != ClusterIPRouting {
		return nil
	}
	return e.step("kube-proxy", func() error { return e.startKubeProxies(e.ctx, hosts) })
}

// controlPlaneHosts returns a host for each kube-apiserver.
func (e *Environment) controlPlaneHosts() ([]*host, error) {
	if e.options.Network == Loopback {
		return []*host{loopbackHost(&e.ports)}, nil
	}
	add := e.lan.addRoutedHost
	if len(e.options.Tunnels) > 0 {
		add = e.lan.addHost
		var err error
		if e.node, err = e.lan.addRoutedHost("node", nodeNumber); err != nil {
			return nil, err
		}
	}
	var hosts []*host
	for i := range e.options.KubeAPIServers {
		h, err := add(fmt.Sprintf("control-plane-%d", i+1), i+1)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// PKI returns the directory of the certificates and keys. Its layout is that of certs.Init, with
// an additional client-ca, which issues the certificates of users.
func (e *Environment) PKI() string { return e.pki.dir }

// Done is closed when a process exits unexpectedly or the context of Start is done. Failure
// returns the cause.
func (e *Environment) Done() <-chan struct{} { return e.ctx.Done() }

// Failure returns the cause of Done with the end of the log of the process that exited, or nil
// while Done is open.
func (e *Environment) Failure() error { return context.Cause(e.ctx) }

// Stop stops all processes in reverse order of their start. It removes the directory if Start
// created it.
func (e *Environment) Stop() error {
	e.stopOnce.Do(func() {
		e.controllers.stopBuilding()
		if cause := e.Failure(); cause == nil || errors.Is(cause, context.Canceled) {
			e.stopErr = e.processes.stopAll(stopTimeout)
		} else {
			// A process has already exited. Processes that depend on it cannot stop in order,
			// which is not a further error.
			_ = e.processes.stopAll(time.Second)
		}
		e.fail(nil)
		if e.lan != nil {
			e.lan.close()
		}
		e.ports.release()
		if e.lock != nil {
			e.lock.Close()
		}
		if e.options.Dir == "" && e.Dir != "" {
			e.stopErr = errors.Join(e.stopErr, os.RemoveAll(e.Dir))
		}
	})
	return e.stopErr
}
