// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"os/exec"
	"slices"
	"syscall"

	"example.com/extension-apiserver/internal/controlplane"
)

// StartCommand starts a command on the host of the first kube-apiserver. The caller waits for it; it is killed when
// this process ends.
func (e *Environment) StartCommand(cmd *exec.Cmd) (err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	controlplane.LaunchChild(func() { err = e.KubeAPIServers[0].host.inNamespace(cmd.Start) })
	return err
}

// StorageCommand is a command of our server's binary, such as snapshot, on the storage of the first server.
// ExternalEtcd needs the network Loopback.
func (e *Environment) StorageCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	args = slices.Concat([]string{"storage", name}, e.storageArgs(1), args)
	return exec.CommandContext(ctx, e.server, args...)
}

// Certgen is the path of certgen of the same version of the kit. It is built when it is first asked for; that it cannot
// be is a Failure of the environment.
func (e *Environment) Certgen() string {
	file, err := Build(e.ctx, kit+"/cmd/certgen")
	if err != nil {
		e.fail(err)
	}
	return file
}
