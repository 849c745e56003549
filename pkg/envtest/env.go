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

// Environment is a running control plane with our servers behind it.
type Environment struct {
	// Dir holds state, logs and kubeconfigs.
	Dir string
	// KubeAPIServers and Servers are what runs, at least one of each.
	KubeAPIServers []*KubeAPIServer
	Servers        []*Server

	options   Options
	binaries  *controlplane.Binaries
	server    string // the file of our servers
	ctx       context.Context
	fail      context.CancelCauseFunc
	lock      *os.File
	ports     ports
	processes processes
	pki       *pki
	lan       *lan  // nil on loopback
	node      *host // beside konnectivity: where agents and our servers are
	etcd      *etcd
	external  *etcd        // that of our servers; nil when it is embedded
	agents    atomic.Int32 // how many agents of konnectivity were made
	// users are the kubeconfigs that were made.
	users struct {
		sync.Mutex
		made sets.Set[string]
	}
	controllers controllers
	// serverKubeconfig is what our servers run with.
	serverKubeconfig string
	stopOnce         sync.Once
	stopErr          error
}

// Start starts everything and returns when the API is registered and a write to it succeeds. On an error, and when ctx
// ends, all that was started is stopped; so it is by Stop, which the caller must call.
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

// withFailure names the process that ended where a step failed for it: what the step says, such as that kubectl was
// killed, tells nobody why.
func withFailure(err, failure error) error {
	if failure == nil || errors.Is(failure, context.Canceled) || errors.Is(err, failure) {
		return err
	}
	return fmt.Errorf("%w\nwhich ended: %w", failure, err)
}

// withDiskSpace says what helps where the state does not fit: other things than a file system have no space left too.
func (e *Environment) withDiskSpace(err error) error {
	const needed = 512 // MiB, where 126 were used
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

// prepare makes the directories and what is missing of the programs.
func (e *Environment) prepare() (err error) {
	if e.Dir == "" {
		// Not t.TempDir: the path of a Unix socket in it may have 107 bytes at most.
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
	if e.options.Network != Loopback { // before minutes of building
		if e.lan, err = newLAN(); err != nil {
			return err
		}
	}
	return e.findPrograms()
}

// findPrograms builds our server, and what is missing of what the environment cannot start without. The modules of the
// latter are downloaded meanwhile.
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

// findServer builds our server, unless the options name a program.
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

// Binary is the path of a program of the control plane, such as kubectl. One that the environment did not start may not
// be built yet.
func (e *Environment) Binary(name string) string { return e.binaries.Path(name) }

// ServerBinary is the path of our servers' program.
func (e *Environment) ServerBinary() string { return e.server }

// step shows what was done and how long it took, in one piece: something may be built meanwhile.
func (e *Environment) step(what string, f func() error) error {
	began := time.Now()
	if err := f(); err != nil {
		fmt.Fprintf(e.options.stepProgress(), "  %-42sfailed\n", what)
		return fmt.Errorf("%s: %w", what, err)
	}
	fmt.Fprintf(e.options.stepProgress(), "  %-42s%5.1fs\n", what, time.Since(began).Seconds())
	return nil
}

// startControlPlane starts the cluster: hosts, etcd, the kube-apiservers, the controllers and, for ClusterIPs,
// kube-proxy.
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
		// ClusterIPs are turned into endpoints where the agents connect to them.
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

// PKI is the directory of the certificates and keys; its layout is that of certs.Init, with client-ca, whose leaves are
// users, beside.
func (e *Environment) PKI() string { return e.pki.dir }

// Done is closed when a process ended that should not have, or when the context of Start ended. Failure tells which.
func (e *Environment) Done() <-chan struct{} { return e.ctx.Done() }

// Failure returns why Done was closed, with the end of the log of the process that ended. It is nil while all is well.
func (e *Environment) Failure() error { return context.Cause(e.ctx) }

// Stop stops everything that was started, the last first, and removes the directory if Start made it.
func (e *Environment) Stop() error {
	e.stopOnce.Do(func() {
		e.controllers.stopBuilding()
		if cause := e.Failure(); cause == nil || errors.Is(cause, context.Canceled) {
			e.stopErr = e.processes.stopAll(stopTimeout)
		} else {
			// Something is gone already: what depends on it cannot stop in order, and that is no further error.
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
