// SPDX-License-Identifier: Apache-2.0

// Command build is go build for a machine with empty caches, where it takes minutes: it tells how far it is, and what helps when there is no
// space or no network. It is compiled within seconds itself.
//
// Usage: build FILE PACKAGE
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"example.com/extension-apiserver/internal/gobuild"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: build FILE PACKAGE")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := build(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n", err)
		os.Exit(1)
	}
}

func build(ctx context.Context, file, pkg string) error {
	log := &gobuild.Log{}
	list := exec.CommandContext(ctx, "go", append([]string{"list"}, gobuild.Stale(pkg)...)...)
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-o", file, pkg)
	cmd.Stdout, cmd.Stderr = log, log
	if err := log.Tell(os.Stderr, pkg, list, (*exec.Cmd).Run, cmd.Run); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, log.Failure())
	}
	return nil
}
