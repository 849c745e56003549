// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"example.com/extension-apiserver/internal/controlplane"
	"example.com/extension-apiserver/internal/gobuild"
)

// build compiles pkg into file and prints an estimate and the progress. It fails if
// KUBEBUILDER_ASSETS is set but unusable.
func build(ctx context.Context, file, pkg string) error {
	if _, err := controlplane.Find(ctx, os.Stderr); err != nil {
		return err
	}
	if _, err := os.Stat(file); err != nil {
		fmt.Fprintln(os.Stderr, firstRun(runtime.GOMAXPROCS(0), os.Getenv("KUBEBUILDER_ASSETS") != ""))
	}
	log := &gobuild.Log{}
	list := exec.CommandContext(ctx, "go", append([]string{"list"}, gobuild.Stale(pkg)...)...)
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-o", file, pkg)
	cmd.Stdout, cmd.Stderr = log, log
	if err := log.WithProgress(os.Stderr, pkg, list, (*exec.Cmd).Run, cmd.Run); err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted; the next build reuses the compiled packages")
		}
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, log.Failure())
	}
	return nil
}

// firstRun returns an estimate of how long make run takes until the API is ready. On 2 CPUs it
// took 3 minutes with a given control plane, and 6 to 10 minutes without one, on different
// machines.
func firstRun(cpus int, given bool) string {
	if given {
		return fmt.Sprintf("First run with %d CPUs: with an empty cache, compiling the server takes about %d minutes. "+
			"If kube-controller-manager is missing, it is built while you use the API.", cpus, 1+4/cpus)
	}
	return fmt.Sprintf("First run with %d CPUs: with an empty cache, it takes %d to %d minutes. It downloads 0.7 GB of "+
		"modules, and compiles the server, etcd, kube-apiserver and kubectl. "+
		"kube-controller-manager is built while you use the API.",
		cpus, 1+10/cpus, 2+16/cpus)
}
