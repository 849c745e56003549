// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/rotation"
)

func newRenewCommand(env environment) *cobra.Command {
	opts := rotation.Options{Now: env.now, Rotation: rotation.Serving}
	var target cluster.Options
	var filesOnly bool
	var signer signerFiles
	cmd := &cobra.Command{
		Use:   "renew {--dir DIR | --secret NAME --ca-secret NAME} --service NAME --namespace NAMESPACE",
		Short: "Renew certificates that are due, in a directory or in Secrets of a cluster",
		Long:  renewLong,
		Example: `  # Create the empty Secret for the CA, once
  kubectl create secret generic widgets-serving-ca --namespace demo

  # Issue missing certificates in the Secrets, and renew those that are due
  certgen renew --secret widgets-serving --ca-secret widgets-serving-ca --service widgets --namespace demo

  # Renew certificates in a directory
  certgen renew --dir pki --service widgets --namespace demo --kubeconfig admin.kubeconfig`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.Progress = progress(env)
			var signerErr error
			opts.Signer, signerErr = signer.read()
			inSecrets, err := useSecrets(cmd.Flags(), opts)
			if err != nil {
				return err
			}
			if err := errors.Join(append(target.Validate(), signerErr, opts.Validate())...); err != nil {
				return err
			}
			return env.show(func() (*certs.Report, error) {
				return renew(cmd.Context(), env, target, opts, inSecrets, filesOnly)
			})
		},
	}
	flags := cmd.Flags()
	rotationFlags(flags, &opts, &target, "Required.")
	secretFlags(flags, &opts)
	signerFlags(flags, &signer)
	flags.Var((*commaList)(&opts.APIServices), "apiservice",
		"Names of APIServices to wait for, comma-separated or repeated. Requires --wait.")
	durationVar(flags, &opts.Within, "wait", 0,
		"Time to wait for the APIServices in --apiservice after the Secrets are written, such as 5m.")
	flags.BoolVar(&opts.ForceConflicts, "force-conflicts", false,
		"Take over fields that other field managers own, except those that an injector owns. Only with --secret.")
	flags.BoolVar(&filesOnly, "files-only", false,
		"Write files only: send no request to a cluster, and observe nothing. Only with --dir.")
	cli.MarkRequired(cmd, "service", "namespace")
	return cmd
}

func renew(ctx context.Context, env environment, target cluster.Options, opts rotation.Options, inSecrets,
	filesOnly bool) (*certs.Report, error) {
	if filesOnly && !inSecrets {
		return rotation.Renew(ctx, opts)
	}
	c, err := open(env, target)
	if err != nil {
		return nil, err
	}
	if inSecrets {
		return rotation.Maintain(ctx, c, opts)
	}
	opts.Observer = c
	return rotation.Renew(ctx, opts)
}

const renewLong = `Complete interrupted rotations, and then renew certificates that have less than a third of their
lifetime left. certgen renew changes no other certificate. Run it each day.

With --secret and --ca-secret, for a Job in the cluster, the serving certificate and its CA are
in Secrets. certgen issues missing certificates; the Secret of the CA must exist, and if it is
empty, certgen issues a new CA. certgen adds the CA to the caBundle of every APIService whose
backend is the Service, and waits for those in --apiservice. It replaces a CA that is due, as
certgen rotate serving-ca does: it observes each step at every endpoint and every kube-apiserver
before the next step. It refuses whatever certgen init and certgen apply refuse.

With --dir, the certificates are in a directory of certgen init. certgen renews the serving
certificate as certgen rotate serving does, and the front proxy's client certificate as certgen
rotate proxy-client does. It reports a CA that is due, but does not replace it: use certgen
rotate serving-ca or front-proxy-ca. With --files-only, certgen sends no request to a cluster and
observes nothing.

With --signer, a cfssl server holds the serving CA's key and signs the certificate.

A Lease in the namespace of the Service excludes a second run at the same time.`
