// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/output"
	"example.com/extension-apiserver/internal/rotation"
	"example.com/extension-apiserver/internal/usage"
)

func newRenewCommand(env environment) *cobra.Command {
	opts := rotation.Options{Now: env.now}
	var cluster rotation.OpenOptions
	var format output.Format
	var filesOnly bool
	cmd := &cobra.Command{
		Use:   "renew --dir DIR --service NAME --namespace NAMESPACE",
		Short: "Replace the leaves that are due, for a cron job",
		Long: `Finish a rotation that is under way, then replace the serving certificate and the front proxy's client certificate in
DIR when less than a third of their life is left, as certgen rotate serving and certgen rotate proxy-client do. What is
not due is left alone. With --files-only no cluster is asked and nothing is observed. A CA that is due is named and not
replaced: certgen rotate serving-ca and certgen rotate front-proxy-ca do that.

Exit codes:
  0  nothing is due, or all that was is done
  1  refused, and nothing was changed; or interrupted, or a file could not be written: run it again
  2  wrong usage
  3  blocked: a rotation stopped in a safe state and needs a person`,
		Example: `  certgen renew --dir pki --service widgets --namespace demo --kubeconfig admin.kubeconfig`,
		Args:    usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.Rotation = rotation.Serving
			if err := errors.Join(append(cluster.Validate(), format.Validate(), opts.Validate())...); err != nil {
				return err
			}
			if !filesOnly {
				c, err := open(env, cluster)
				if err != nil {
					return err
				}
				opts.Observer = c
			}
			opts.Progress = progress(env, format)
			report, err := rotation.Renew(cmd.Context(), opts)
			if report == nil {
				return err
			}
			return errors.Join(err, format.Print(env.stdout, report, func(w io.Writer) {
				for _, item := range report.Items {
					fmt.Fprintf(w, "%-9s %s\n", item.Action, item.Path)
					line(w, "why", item.Reason)
				}
			}))
		},
	}
	rotationFlags(cmd.Flags(), &opts, &cluster)
	cmd.Flags().BoolVar(&filesOnly, "files-only", false, "ask no cluster: write files and observe nothing")
	output.AddFlag(cmd, &format)
	return cmd
}
