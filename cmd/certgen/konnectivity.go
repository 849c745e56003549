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
		Short: "Check a konnectivity set, and make its server's kubeconfig",
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
		Short: "Check configuration, manifests and certificates of konnectivity against each other",
		Long: `Check that kube-apiserver, konnectivity's servers and agents fit each other: protocol and
socket, authentication of agents, names in certificates, times and counts. Nothing is changed and no
cluster is asked.

DIR holds, in any folders:
  *.yaml   the EgressSelectorConfiguration, as a file or in a ConfigMap; the manifests of servers and
           agents, rendered; that of kube-apiserver
  pairs    of certgen init --with konnectivity, under their names. A file that a manifest names is found by the last two
           parts of its path: konnectivity-agent-server/tls.crt

Containers are known by the names kube-apiserver, konnectivity-server and konnectivity-agent, or by
the images kube-apiserver, proxy-server and proxy-agent. docs/konnectivity/troubleshooting.md lists
all findings; those of the pairs are those of certgen verify. Findings of severity error are on
standard error too.

Exit codes:
  0  no finding of severity error; with --strict, none of severity warning either
  1  such a finding
  2  wrong usage, or a directory that does not exist or holds no manifests`,
		Example: `  mkdir set
  cp konnectivity/egress/grpc-uds.yaml /etc/kubernetes/manifests/kube-apiserver.yaml set
  kubectl kustomize konnectivity/server/static-pod >set/server.yaml
  kubectl kustomize konnectivity/agents/base >set/agents.yaml
  certgen init --service widgets --namespace demo --dir set/pki --with konnectivity \
    --konnectivity-agent-server-name konnectivity.example.com
  certgen konnectivity verify --dir set

  # For scripts
  certgen konnectivity verify --dir set --strict -o json | jq '.findings[] | {id, object, fix}'`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := certs.Require(dirFlag, dir, "the directory to check, such as ./set"); err != nil {
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
	flags.StringVar(&dir, dirFlag, "", "directory of the manifests and certificates (required)")
	flags.Var((*commaList)(&opts.ClientCAFiles), "client-ca",
		"files with the CAs of the cluster's users; an error if one of them decides who is an agent")
	flags.BoolVar(&strict, "strict", false, "exit with 1 for warnings too")
	return cmd
}

func newKubeconfigCommand(env environment) *cobra.Command {
	opts := kubeconfig.Options{Now: env.now}
	cmd := &cobra.Command{
		Use:   "kubeconfig --user NAME --ca PATH --server URL --server-ca FILE --out FILE",
		Short: "Make a user's client certificate and kubeconfig",
		Long: `Make a client certificate with the CA of the cluster's users, and a kubeconfig (mode 0600)
that uses it.

Certificate and key are in FILE.d, where clients read them again every 5 minutes; run the same
command again to renew them. With --embed they are in the kubeconfig itself, and clients read them
only when they start. A kubeconfig with other content is never overwritten.

The group system:masters is refused unless --allow-system-masters is given: no authorizer can limit
it, and a certificate cannot be revoked.`,
		Example: `  certgen konnectivity kubeconfig --user jane --group developers --ca users-ca --server https://10.0.0.1:6443 \
    --server-ca pki/serving/ca.crt --out jane.kubeconfig`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return env.show(func() (*certs.Report, error) { return kubeconfig.Write(cmd.Context(), opts) })
		},
	}
	flags := cmd.Flags()
	clientFlags(flags, &opts.Client.User, &opts.Client.Groups, &opts.Client.AllowSystemMasters)
	flags.StringVar(&opts.CA, "ca", "",
		"CA of the cluster's users: a directory with tls.crt and tls.key, or a file such as ca.crt with ca.key "+
			"beside it (required)")
	flags.StringVar(&opts.Server, "server", "", "URL of the server (required)")
	flags.StringVar(&opts.ServerCAFile, "server-ca", "", "file of the CAs that vouch for the server (required)")
	flags.StringVar(&opts.Out, "out", "", "file for the kubeconfig (required)")
	flags.BoolVar(&opts.Embed, "embed", false, "put certificate, key and CAs into the kubeconfig")
	keyTypeFlag(flags, &opts.Client.KeyType)
	lifetimeFlags(flags, &opts.Client.Lifetime, &opts.Client.AllowLongLived)
	return cmd
}
