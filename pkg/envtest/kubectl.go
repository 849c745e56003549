// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	"example.com/extension-apiserver/internal/controlplane"
)

// Kubectl is one run of kubectl, on the host of the first kube-apiserver and in the root of the
// module of the working directory.
type Kubectl struct {
	// User is the user who runs it. Empty means Admin.
	User string
	// Stdin is the standard input.
	Stdin string
	// Stdout receives the output while kubectl runs. If it is nil, Run returns the output.
	Stdout io.Writer
	// Env contains additional environment variables.
	Env []string
}

// Run runs kubectl until it exits or ctx is done.
func (k Kubectl) Run(ctx context.Context, e *Environment, args ...string) (stdout, stderr string, err error) {
	kubeconfig, err := e.AdminKubeconfig()
	if k.User != "" {
		kubeconfig, err = e.Kubeconfig(k.User)
	}
	if err != nil {
		return "", "", err
	}
	cmd := exec.CommandContext(ctx, e.Binary("kubectl"), append([]string{"--kubeconfig=" + kubeconfig}, args...)...)
	if cmd.Dir, err = moduleRoot(); err != nil {
		return "", "", err
	}
	var out, errOut strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(k.Stdin), &out, &errOut
	if k.Stdout != nil {
		cmd.Stdout = k.Stdout
	}
	// Use a separate cache: discovery that was cached for another cluster at the same address is
	// invalid.
	cmd.Env = append(append(withoutProxies(cmd.Environ()), "HOME="+e.Dir,
		"KUBECACHEDIR="+filepath.Join(e.Dir, "kubectl-cache")), k.Env...)
	controlplane.LaunchChild(func() { err = e.KubeAPIServers[0].host.inNamespace(cmd.Start) })
	if err == nil {
		err = cmd.Wait()
	}
	return out.String(), errOut.String(), err
}
