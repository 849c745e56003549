// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/manifest"
	"example.com/extension-apiserver/internal/usage"
)

func newEmitCommand(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "emit",
		Short: "Write certificates as manifests for kubectl and kustomize",
		Long: `Write certificates as manifests, without asking a cluster. The same certificates give the same bytes, so manifests can
be kept in git and compared.`,
		Args: usage.NoCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEmitSecretCommand(env), newEmitCABundleCommand(env))
	return cmd
}

func newEmitSecretCommand(env environment) *cobra.Command {
	var opts manifest.SecretOptions
	var out string
	var toStdout bool
	cmd := &cobra.Command{
		Use:   "secret --from DIR --name NAME --namespace NAMESPACE --out FILE",
		Short: "Write a pair as a Secret of type kubernetes.io/tls",
		Long: `Write the pair in a directory as a Secret of type kubernetes.io/tls with tls.crt, tls.key and, if it is there, ca.crt
without CAs that have expired.

The manifest holds the private key, unencrypted. It goes to a file of mode 0600; standard output gets it only with
--to-stdout, for a pipe into kubectl. What certgen verify calls an error is refused, and so is the key of a CA, unless
--with-ca-key is given: whoever can read the Secret can then make certificates.`,
		Example: `  certgen emit secret --from pki/serving --name widgets-serving --namespace demo --out secret.yaml
  certgen emit secret --from pki/serving --name widgets-serving --namespace demo --to-stdout | kubectl apply -f -`,
		Args: usage.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var err error
			if (out == "") != toStdout {
				err = &certs.InvalidError{Field: "out", Value: out, Reason: "expected a file for the manifest, which holds the private key, or --to-stdout; give one of them"}
			}
			if err := errors.Join(opts.Validate(), err); err != nil {
				return err
			}
			opts.Now = env.now()
			data, err := manifest.Secret(opts)
			if err != nil {
				return err
			}
			if toStdout {
				return writeBytes(env.stdout, data)
			}
			return manifest.WriteFile(out, data)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.From, "from", "", "directory of the pair (required)")
	flags.StringVar(&opts.Name, "name", "", "name of the Secret (required)")
	flags.StringVar(&opts.Namespace, "namespace", "", "namespace of the Secret (required)")
	flags.StringVar(&out, "out", "", "file for the manifest, replaced if it is there")
	flags.BoolVar(&toStdout, "to-stdout", false, "write the manifest, with the private key, to standard output")
	flags.BoolVar(&opts.AllowCAKey, "with-ca-key", false, "allow the key of a CA in the Secret")
	return cmd
}

func newEmitCABundleCommand(env environment) *cobra.Command {
	var opts manifest.CABundleOptions
	cmd := &cobra.Command{
		Use:   "apiservice-ca-bundle --from PATH --apiservice NAME...",
		Short: "Write the caBundle of APIServices as patches",
		Long: `Write for each APIService a document with its caBundle and nothing else, to standard output. It holds no secret.

The CAs are those of a file, or of ca.crt in a directory: sorted, none twice, none that has expired. Give every version
of the API, since each has an APIService of its own.

kubectl apply --server-side changes the caBundle of an APIService that is there and owns that field from then on. If
another manager owns it, such as kubectl's own apply, that is a conflict: add --force-conflicts once. An APIService that
is not there is refused. kustomize takes the documents as patches.`,
		Example: `  certgen emit apiservice-ca-bundle --from pki/serving --apiservice v1.workshop.example.com,v1beta1.workshop.example.com |
    kubectl apply --server-side --field-manager certgen -f -

  # For kustomize: patches: [{path: ca-bundle.yaml}]
  certgen emit apiservice-ca-bundle --from pki/serving --apiservice v1.workshop.example.com > ca-bundle.yaml`,
		Args: usage.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := opts.Validate(); err != nil {
				return err
			}
			opts.Now = env.now()
			data, err := manifest.CABundles(opts)
			if err != nil {
				return err
			}
			return writeBytes(env.stdout, data)
		},
	}
	cmd.Flags().StringVar(&opts.From, "from", "", "file of CAs, or directory that holds ca.crt (required)")
	cmd.Flags().StringSliceVar(&opts.APIServices, "apiservice", nil, "names of the APIServices, with commas or repeated (required)")
	return cmd
}

func writeBytes(w io.Writer, data []byte) error {
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}
