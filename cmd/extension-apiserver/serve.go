// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"

	"example.com/extension-apiserver/pkg/apiserver"
)

func newServeCommand(args []string) *cobra.Command {
	options := apiserver.NewOptions()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the API",
		Long: `Serve the API to kube-apiserver's aggregation layer.

Identity is accepted from the cluster's front proxy, from client certificates of the cluster's CA and from bearer tokens;
every request is authorized by the cluster. Objects are stored in an embedded etcd, or in the etcd of --etcd-servers.`,
		Example: `  # In a pod, with the pod's ServiceAccount:
  extension-apiserver serve --tls-cert-file=/certs/tls.crt --tls-private-key-file=/certs/tls.key

  # Outside of the cluster, with an etcd of its own:
  extension-apiserver serve --kubeconfig=server.kubeconfig --tls-cert-file=tls.crt --tls-private-key-file=tls.key \
    --etcd-servers=https://10.0.0.5:2379 --etcd-cafile=ca.crt --etcd-certfile=client.crt --etcd-keyfile=client.key`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.ServerRun.ComponentGlobalsRegistry.Set(); err != nil {
				return err
			}
			if err := logsapi.ValidateAndApply(options.Logs, utilfeature.DefaultFeatureGate); err != nil {
				return err
			}
			defer logs.FlushLogs()
			options.Complete()
			if err := options.Validate(); err != nil {
				return err
			}
			return apiserver.Run(cmd.Context(), options)
		},
	}
	flags := options.Flags()
	for _, fs := range flags.FlagSets {
		cmd.Flags().AddFlagSet(fs)
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, _ error) error {
		errs := flagErrors(cmd.Flags(), args[1:])
		// What was parsed can still be looked at, so that one run shows everything.
		options.Complete()
		if err := options.Validate(); err != nil {
			errs = append(errs, err)
		}
		return fmt.Errorf("%w\nsee: extension-apiserver serve --help", errors.Join(errs...))
	})
	width, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, flags, width)
	return cmd
}
