// SPDX-License-Identifier: Apache-2.0

// Command setup-envtest builds the programs that local control planes and tests need, into a cache
// that all projects of a machine share. It compiles within seconds, and reports the progress of
// builds that take minutes. A second run does nothing.
//
// Usage:
//
//	setup-envtest programs [PROGRAM...]
//	setup-envtest build FILE PACKAGE
//
// programs builds the given programs and prints their directory. Without arguments it builds etcd,
// kube-apiserver, kube-controller-manager, kube-proxy, kubectl, sample-apiserver, proxy-server and
// proxy-agent. Tests build the programs they need themselves; run this to fill the cache before the
// tests, such as on a CI machine.
//
// build runs go build for a command that starts a control plane.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"example.com/extension-apiserver/internal/controlplane"
)

const usage = `Build the programs of local control planes into a cache that all projects share.

Usage:
  setup-envtest programs [PROGRAM...]
  setup-envtest build FILE PACKAGE

Commands:
  programs  Build programs of the control plane, by default all, and print their directory
  build     Build a command that starts a control plane, as go build does, and print the progress

Examples:
  # Build the programs that all tests need
  setup-envtest programs

  # Build kubectl only
  setup-envtest programs kubectl
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := error(nil)
	switch args := os.Args[1:]; {
	case len(args) > 0 && args[0] == "programs":
		var dir string
		if dir, err = controlplane.Fill(ctx, os.Stderr, args[1:]...); err == nil {
			fmt.Println(dir)
		}
	case len(args) == 3 && args[0] == "build":
		err = build(ctx, args[1], args[2])
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "setup-envtest: %v\n", err)
		os.Exit(1)
	}
}
