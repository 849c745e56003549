// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/konnectivity"
	"example.com/extension-apiserver/internal/kubeconfig"
)

func newKonnectivityCommand(env environment) *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "konnectivity",
		Short: "Verify a konnectivity setup, and create the kubeconfig of its server",
		Example: `  # Verify manifests and certificates in a directory
  certgen konnectivity verify --dir set

  # Create a kubeconfig for the user of konnectivity's server
  certgen konnectivity kubeconfig --user system:konnectivity-server --ca users-ca --server https://10.0.0.1:6443 \
    --server-ca cluster-ca.crt --out konnectivity-server.kubeconfig`,
	})
	cmd.AddCommand(newVerifyKonnectivityCommand(env), newKubeconfigCommand(env))
	return cmd
}

func newVerifyKonnectivityCommand(env environment) *cobra.Command {
	var opts konnectivity.Options
	var strict bool
	var dir string
	cmd := &cobra.Command{
		Use:   "verify --dir DIR",
		Short: "Verify that konnectivity's configuration, manifests and certificates match",
		Long: `Verify that the configuration of kube-apiserver, and konnectivity's servers and agents match:
protocol and socket, authentication of agents, names in certificates, expiration and number of
servers. certgen changes nothing and sends no request to a cluster.

DIR contains, at any depth:
  *.yaml        the EgressSelectorConfiguration, as a file or in a ConfigMap, the rendered
                manifests of servers and agents, and the manifest of kube-apiserver
  certificates  of certgen init --with konnectivity, in directories of the same names. certgen
                finds a file that a manifest names by the last two parts of its path, such as
                konnectivity-agent-server/tls.crt

certgen recognizes containers by the names kube-apiserver, konnectivity-server and
konnectivity-agent, or by the images kube-apiserver, proxy-server and proxy-agent.
docs/konnectivity/troubleshooting.md lists all findings; those about certificates are the
findings of certgen verify. Standard error reports findings of severity error too.`,
		Example: `  # Collect manifests and certificates in a directory, and verify them
  mkdir set
  cp konnectivity/egress/grpc-uds.yaml /etc/kubernetes/manifests/kube-apiserver.yaml set
  kubectl kustomize konnectivity/server/static-pod >set/server.yaml
  kubectl kustomize konnectivity/agents/base >set/agents.yaml
  certgen init --service widgets --namespace demo --dir set/pki --with konnectivity \
    --konnectivity-agent-server-name konnectivity.example.com
  certgen konnectivity verify --dir set

  # Print the findings as JSON, and exit with 1 for warnings too
  certgen konnectivity verify --dir set --strict -o json | jq '.findings[] | {id, object, fix}'`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := certs.Require(dirFlag, dir, "the directory to verify, such as ./set"); err != nil {
				return err
			}
			opts.Now = env.now()
			report, err := konnectivity.Verify(dir, opts)
			if err != nil {
				return cli.UsageError(certs.Flatten(err)...)
			}
			return showFindings(env, report, strict)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&dir, dirFlag, "", "Directory of the manifests and certificates. Required.")
	flags.Var((*commaList)(&opts.ClientCAFiles), "client-ca",
		"Files with the CAs that sign the cluster's users, comma-separated or repeated. certgen reports an error if one "+
			"of them authenticates agents.")
	flags.BoolVar(&strict, "strict", false, "Exit with 1 for warnings too.")
	cli.MarkRequired(cmd, dirFlag)
	return cmd
}

func newKubeconfigCommand(env environment) *cobra.Command {
	opts := kubeconfig.Options{Now: env.now}
	cmd := &cobra.Command{
		Use:   "kubeconfig --user NAME --ca PATH --server URL --server-ca FILE --out FILE",
		Short: "Issue a client certificate for a user, and create its kubeconfig",
		Long: `Issue a client certificate that the CA of the cluster's users signs, and create a kubeconfig
(mode 0600) that uses it.

certgen stores certificate and key in FILE.d. Clients read them again every 5 minutes; to renew
them, run the same command again. With --embed the kubeconfig contains them, and clients read
them only at startup. certgen never overwrites a kubeconfig with other content.

certgen refuses the group system:masters unless you set --allow-system-masters: no authorizer can
restrict this group, and you cannot revoke a certificate.`,
		Example: `  # Create a kubeconfig for the user jane of the group developers
  certgen konnectivity kubeconfig --user jane --group developers --ca users-ca --server https://10.0.0.1:6443 \
    --server-ca pki/serving/ca.crt --out jane.kubeconfig`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return env.show(func() (*certs.Report, error) { return kubeconfig.Write(cmd.Context(), opts) })
		},
	}
	flags := cmd.Flags()
	clientFlags(flags, &opts.Client.User, &opts.Client.Groups, &opts.Client.AllowSystemMasters, " Required.")
	flags.StringVar(&opts.CA, "ca", "",
		"CA that signs the cluster's users: a directory with tls.crt and tls.key, or a file such as ca.crt with ca.key "+
			"in the same directory. Required.")
	flags.StringVar(&opts.Server, "server", "", "URL of the server. Required.")
	flags.StringVar(&opts.ServerCAFile, "server-ca", "", "File with the CAs that verify the server. Required.")
	flags.StringVar(&opts.Out, "out", "", "File for the kubeconfig. Required.")
	flags.BoolVar(&opts.Embed, "embed", false, "Embed certificate, key and CAs in the kubeconfig.")
	keyTypeFlag(flags, &opts.Client.KeyType)
	lifetimeFlags(flags, &opts.Client.Lifetime, &opts.Client.AllowLongLived)
	cli.MarkRequired(cmd, "user", "ca", "server", "server-ca", "out")
	return cmd
}
