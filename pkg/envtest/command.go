// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"os/exec"
	"slices"
	"syscall"

	"example.com/extension-apiserver/internal/controlplane"
)

// StartCommand starts a command on the host of the first kube-apiserver. The caller must wait for
// it. It is killed when this process exits.
func (e *Environment) StartCommand(cmd *exec.Cmd) (err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	controlplane.LaunchChild(func() { err = e.KubeAPIServers[0].host.inNamespace(cmd.Start) })
	return err
}

// StorageCommand returns a command of the extension API server's binary, such as snapshot, for
// the storage of the first server. With ExternalEtcd it needs the network Loopback.
func (e *Environment) StorageCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	args = slices.Concat([]string{"storage", name}, e.storageArgs(1), args)
	return exec.CommandContext(ctx, e.server, args...)
}

// Certgen returns the path of certgen of the same version of the kit, and builds it on the first
// call. If the build fails, the environment fails with the error.
func (e *Environment) Certgen() string {
	file, err := Build(e.ctx, kit+"/cmd/certgen")
	if err != nil {
		e.fail(err)
	}
	return file
}
