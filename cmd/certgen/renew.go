// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/certs"
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
		Short: "Replace what is due, in a directory or in the cluster's Secrets, for a cron job",
		Long:  renewLong,
		Example: `  # In the cluster, once for each: where the CA will be
  kubectl create secret generic widgets-serving-ca --namespace demo

  certgen renew --secret widgets-serving --ca-secret widgets-serving-ca --service widgets --namespace demo

  # In a directory
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
	rotationFlags(flags, &opts, &target)
	secretFlags(flags, &opts)
	signerFlags(flags, &signer)
	flags.Var((*commaList)(&opts.APIServices), "apiservice",
		"names of APIServices to wait for, with commas or repeated")
	durationVar(flags, &opts.Within, "wait", 0, "how long to wait for them, after the Secrets are written")
	flags.BoolVar(&opts.ForceConflicts, "force-conflicts", false,
		"with --secret, take the fields from other managers, but for an injector")
	flags.BoolVar(&filesOnly, "files-only", false, "ask no cluster: write files and observe nothing")
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

const renewLong = `Finish rotations that are under way, then replace what is due: has less than a
third of its life left. It changes no other certificate.

With --secret and --ca-secret, for a job in a pod: the serving certificate and its CA are in Secrets
of the cluster. certgen creates missing ones. The CA's Secret must exist; an empty one gets a new CA. The
CA becomes the caBundle of every APIService whose backend is the Service; with --apiservice and
--wait it waits for those to come. A CA that is due is replaced as certgen rotate serving-ca does:
each step is seen at every endpoint and every kube-apiserver before the next. What certgen init and
certgen apply refuse is refused here.

With --dir, for the directory of certgen init: the serving certificate and the front proxy's client
certificate, as certgen rotate serving and certgen rotate proxy-client do. With --files-only no
cluster is asked and nothing is observed. A CA that is due is named and not replaced: certgen rotate
serving-ca and certgen rotate front-proxy-ca do that.

With --signer a cfssl server has the serving CA's key, and signs what certgen asks for; the CA's
certificate is in its place alone.

A Lease in the namespace of the Service keeps a second one away meanwhile.

Exit codes:
  0  nothing is due, or all that was is done
  1  refused, and what was refused is unchanged; or interrupted, or the cluster did not accept or answer: run it again
  2  wrong usage, or a kubeconfig that cannot be used
  3  blocked: a rotation stopped in a safe state and needs a person`
