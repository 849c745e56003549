// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/kubeconfig"
	"example.com/extension-apiserver/internal/output"
	"example.com/extension-apiserver/internal/usage"
)

func newKubeconfigCommand(env environment) *cobra.Command {
	opts := kubeconfig.Options{Now: env.now}
	var format output.Format
	cmd := &cobra.Command{
		Use:   "kubeconfig --user NAME --ca PATH --server URL --server-ca FILE --out FILE",
		Short: "Make a user's client certificate and kubeconfig",
		Long: `Make a client certificate with the CA of the cluster's users, and a kubeconfig (mode 0600) that uses it.

Certificate and key are in FILE.d, where clients read them again every 5 minutes; run the same command again to renew
them. With --embed they are in the kubeconfig itself, and clients read them only when they start. A kubeconfig with other
content is never overwritten.

The group system:masters is refused unless --allow-system-masters is given: no authorizer can limit it, and a
certificate cannot be revoked.`,
		Example: `  certgen konnectivity kubeconfig --user jane --group developers --ca users-ca --server https://10.0.0.1:6443 \
    --server-ca pki/serving/ca.crt --out jane.kubeconfig`,
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := format.Validate(); err != nil {
				return err
			}
			report, err := kubeconfig.Write(cmd.Context(), opts)
			return show(env, format, report, err, printIssued)
		},
	}
	flags := cmd.Flags()
	clientFlags(flags, &opts.Client.User, &opts.Client.Groups, &opts.Client.AllowSystemMasters)
	flags.StringVar(&opts.CA, "ca", "", "CA of the cluster's users: a directory with tls.crt and tls.key, or a file such as ca.crt with ca.key beside it (required)")
	flags.StringVar(&opts.Server, "server", "", "URL of the server (required)")
	flags.StringVar(&opts.ServerCAFile, "server-ca", "", "file of the CAs that vouch for the server (required)")
	flags.StringVar(&opts.Out, "out", "", "file for the kubeconfig (required)")
	flags.BoolVar(&opts.Embed, "embed", false, "put certificate, key and CAs into the kubeconfig")
	keyTypeFlag(flags, &opts.Client.KeyType)
	lifetimeFlags(flags, &opts.Client.Lifetime, &opts.Client.AllowLongLived)
	output.AddFlag(cmd, &format)
	return cmd
}
