// SPDX-License-Identifier: Apache-2.0

// Command setup builds what a control plane for tests consists of into the cache that all projects of a machine share, and prints its
// directory: those of the programs etcd, kube-apiserver, kube-controller-manager, kube-proxy, kubectl, sample-apiserver, proxy-server and
// proxy-agent that its arguments name, or all. Nobody needs to run it: a test builds what it needs. It fills the cache before tests, as on a
// CI machine, and finds kubectl. A second run does nothing.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"example.com/extension-apiserver/internal/controlplane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	dir, err := controlplane.Fill(ctx, os.Stderr, os.Args[1:]...)
	if err != nil {
		fmt.Fprintf(os.Stderr, "setup: %v\n", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
