// SPDX-License-Identifier: Apache-2.0

package command

import (
	"github.com/spf13/cobra"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/pkg/apiserver"
)

func newServeCommand(api apiserver.API, options *apiserver.Options) *cobra.Command {
	stores, etcd := "It stores objects in the etcd at --etcd-servers", ` \
    --etcd-servers=https://10.0.0.5:2379 --etcd-cafile=ca.crt --etcd-certfile=client.crt --etcd-keyfile=client.key`
	inPod := etcd
	switch {
	case !options.HasStorage():
		stores, inPod, etcd = "It has no storage: the objects are those of other systems", "", ""
	case api.EmbeddedEtcd != nil:
		stores, inPod = "It stores objects in an embedded etcd, or in the etcd at --etcd-servers", ""
	}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the API",
		Long: cli.Named(api.Name, `Serve the API to kube-apiserver's aggregation layer.

The server accepts the identity of a user from the cluster's front proxy, from a client certificate
of the cluster's client CA, or from a bearer token. It delegates authorization to kube-apiserver.
`+stores+`.

Examples:
  # Serve in a pod, with the ServiceAccount of the pod
  SERVER serve --tls-cert-file=/certs/tls.crt --tls-private-key-file=/certs/tls.key`+inPod+`

  # Serve outside of the cluster
  SERVER serve --kubeconfig=server.kubeconfig --tls-cert-file=tls.crt --tls-private-key-file=tls.key`+etcd),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Complete()
			if problems := options.Validate(); len(problems) > 0 {
				return cli.UsageError(problems...)
			}
			if err := logsapi.ValidateAndApply(options.Logs, utilfeature.DefaultFeatureGate); err != nil {
				return err
			}
			defer logs.FlushLogs()
			return apiserver.Run(cmd.Context(), options)
		},
	}
	flags := options.Flags()
	for _, fs := range flags.FlagSets {
		cmd.Flags().AddFlagSet(fs)
	}
	width, _, _ := term.TerminalSize(cmd.OutOrStdout())
	// It omits the field Example, so the examples are at the end of Long.
	cliflag.SetUsageAndHelpFunc(cmd, flags, width)
	return cmd
}
