// SPDX-License-Identifier: Apache-2.0

// Command scaffold creates a project, and changes its kinds, versions and groups.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/scaffold"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string) int {
	cmd := scaffold.NewCommand()
	cmd.SetArgs(args)
	return cli.Run(ctx, cmd)
}
