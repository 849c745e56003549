// SPDX-License-Identifier: Apache-2.0

// Command extension-apiserver is an API server behind the aggregation layer of kube-apiserver.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

func main() {
	root := newRootCommand(os.Args[1:])
	if err := root.ExecuteContext(genericapiserver.SetupSignalContext()); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

func newRootCommand(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "extension-apiserver",
		Short: "An API server behind the aggregation layer of kube-apiserver",
		// Errors are printed once, by main; the usage text would bury them.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetArgs(args)
	root.AddCommand(newServeCommand(args), newVersionCommand())
	return root
}
