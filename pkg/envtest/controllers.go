// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"fmt"
	"sync"
)

const controllerManager = "kube-controller-manager"

const withoutControllers = "namespaces are not deleted, garbage is not collected, and quotas are not counted"

// controllers is kube-controller-manager, which starts after everything else if it must be built
// first.
type controllers struct {
	mu       sync.Mutex // held while it is started, or must not be
	process  *process   // nil until it is started
	built    chan struct{}
	failed   error // why it was not started; valid after built is closed
	cancel   context.CancelFunc
	building sync.WaitGroup
}

// startControllers starts the controllers unless they must be built, which takes minutes. No
// other step of Start needs them.
func (e *Environment) startControllers() error {
	if !e.binaries.Has(controllerManager) {
		return nil
	}
	return e.runControllers()
}

// buildControllers builds and starts the controllers if startControllers did not. It returns at
// once. If they cannot be built, the API is available without them.
func (e *Environment) buildControllers() {
	c, progress := &e.controllers, e.options.buildProgress()
	if e.ControllersStarted() {
		return
	}
	fmt.Fprintf(progress, "kube-controller-manager is being built. Until it runs, %s.\n", withoutControllers)
	ctx, cancel := context.WithCancel(e.ctx)
	c.cancel = cancel
	c.building.Go(func() {
		if err := e.binaries.Ensure(ctx, controllerManager); err != nil {
			if ctx.Err() == nil {
				c.failed = fmt.Errorf("start the controllers: %w", err)
				fmt.Fprintf(progress, "%v\nWithout it, %s.\n", c.failed, withoutControllers)
				close(c.built)
			}
		} else if err := e.runControllers(); err != nil && ctx.Err() == nil {
			e.fail(fmt.Errorf("start the controllers: %w", err))
		}
	})
}

// stopBuilding cancels the build and waits until no further process is started.
func (c *controllers) stopBuilding() {
	if c.cancel != nil {
		c.cancel()
	}
	c.building.Wait()
}

// ControllersStarted reports whether kube-controller-manager has been started.
func (e *Environment) ControllersStarted() bool {
	select {
	case <-e.controllers.built:
		return e.controllers.failed == nil
	default:
		return false
	}
}

// WaitControllers returns when kube-controller-manager has been started. Start starts it unless
// its program must be built, which takes minutes. Until then no namespace is deleted, no garbage
// is collected, and no quota is counted. The error is the cause of ctx, the error of the build,
// or the Failure of the environment.
func (e *Environment) WaitControllers(ctx context.Context) error {
	select {
	case <-e.controllers.built:
		return e.controllers.failed
	case <-e.Done():
		return fmt.Errorf("wait for the controllers: %w", e.Failure())
	case <-ctx.Done():
		return fmt.Errorf("wait for the controllers: %w", context.Cause(ctx))
	}
}

// StopKubeAPIServer stops a kube-apiserver as the kubelet does when its manifest is removed.
// RestartKubeAPIServer starts it again.
func (e *Environment) StopKubeAPIServer(k *KubeAPIServer) error { return k.stop() }

// RestartKubeAPIServer stops a kube-apiserver and starts it again at the same address. It returns
// when it is ready. The controllers are stopped meanwhile: kube-controller-manager exits if
// kube-apiserver becomes unavailable during its start, and no kubelet would start it again.
func (e *Environment) RestartKubeAPIServer(ctx context.Context, k *KubeAPIServer) error {
	c := &e.controllers
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil {
		if err := c.process.stop(); err != nil {
			return err
		}
	}
	name := k.name
	if err := k.stop(); err != nil {
		return err
	}
	if err := e.runKubeAPIServer(ctx, k, name); err != nil || c.process == nil {
		return err
	}
	return e.startControllerManager()
}

// UpgradeKubeAPIServer is RestartKubeAPIServer with another program, such as one of another minor
// version. The other kube-apiservers and kube-controller-manager are not changed.
func (e *Environment) UpgradeKubeAPIServer(ctx context.Context, k *KubeAPIServer, program string) error {
	k.command[0] = program
	return e.RestartKubeAPIServer(ctx, k)
}

// runControllers starts the controllers for the first time.
func (e *Environment) runControllers() error {
	c := &e.controllers
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := e.startControllerManager(); err != nil {
		return err
	}
	close(c.built)
	return nil
}

// startControllerManager starts kube-controller-manager, which deletes namespaces, collects
// garbage and counts quota.
func (e *Environment) startControllerManager() error {
	h := e.KubeAPIServers[0].host
	port, err := h.port(10257)
	if err != nil {
		return err
	}
	kubeconfig, err := e.Kubeconfig("system:kube-controller-manager")
	if err != nil {
		return err
	}
	if err := e.pki.serving(controllerManager, localNames(h)); err != nil {
		return err
	}
	e.controllers.process, err = e.processes.start(h, controllerManager, []string{
		e.Binary(controllerManager),
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + h.address,
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + e.pki.cert(controllerManager),
		"--tls-private-key-file=" + e.pki.key(controllerManager),
		"--service-account-private-key-file=" + e.pki.key("service-account"),
		"--root-ca-file=" + e.pki.cert("control-plane-ca"),
		"--use-service-account-credentials",
		// There is only one instance.
		"--leader-elect=false",
	})
	return err
}
