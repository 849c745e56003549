// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
)

// StartCommand starts a command on the host of the first kube-apiserver. The caller waits for it; it is killed when this
// process ends.
func (e *Environment) StartCommand(cmd *exec.Cmd) (err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	launch()(func() { err = e.KubeAPIServers[0].host.inside(cmd.Start) })
	return err
}

// StorageCommand is a command of our server's binary, such as snapshot, on the storage of the first server. ExternalEtcd needs the
// network Loopback.
func (e *Environment) StorageCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	args = slices.Concat([]string{"storage", name}, e.storageArgs(1), args)
	return exec.CommandContext(ctx, e.serverBinary(), args...)
}

// Certgen is the path of the certgen that was built with our server.
func (e *Environment) Certgen() string { return filepath.Join(e.root, "bin", "certgen") }
