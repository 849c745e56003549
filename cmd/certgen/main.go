// SPDX-License-Identifier: Apache-2.0

// Command certgen issues, inspects and verifies the certificates of an extension API server,
// applies them to a cluster and checks the running servers. It parses flags and prints the results
// of internal/certs and internal/rotation. Its output follows these rules:
//
//   - Standard output holds the result, as text or JSON, and never a private key.
//   - Standard error holds errors and the progress of rotations, one line each, beginning with
//     "certgen:".
//   - The exit code is 0 for success, 1 for a finding or a refusal, 2 for wrong usage, 3 for a
//     blocked rotation.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/rotation"
)

// exitBlocked is the exit code for a rotation that stopped in a safe state and needs an operator.
const exitBlocked = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], environment{stdout: os.Stdout, stderr: os.Stderr, now: time.Now})
	stop()
	os.Exit(code)
}

// environment holds the process dependencies of commands, so that tests can replace them.
type environment struct {
	stdout, stderr io.Writer
	now            func() time.Time
	format         *cli.Format // output format of the result
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, env environment) int {
	cmd := newCommand(env)
	cmd.SetArgs(args)
	return cli.Run(ctx, cmd, explain)
}

// explain returns an error with its exit code. It reports an invalid option as wrong usage of the
// flag of the same name.
func explain(err error) error {
	end := &cli.Error{Code: 1}
	if _, ok := errors.AsType[*cli.Error](err); ok {
		end.Code = cli.ExitUsage
	} else if _, ok := errors.AsType[*rotation.BlockedError](err); ok {
		end.Code = exitBlocked
	}
	for _, e := range certs.Flatten(err) {
		if _, ok := errors.AsType[*certs.InvalidError](e); ok && end.Code != exitBlocked {
			e, end.Code = fmt.Errorf("--%w", e), cli.ExitUsage
		}
		end.Errs = append(end.Errs, e)
	}
	return end
}

func newCommand(env environment) *cobra.Command {
	env.format = new(cli.Format)
	cmd := &cobra.Command{
		Use:   "certgen",
		Short: "Issue, verify, apply and rotate the certificates of an extension API server",
		Long: `Issue, verify, apply and rotate the certificates of an extension API server, in a directory or in
a cluster:

  - the serving certificate that kube-apiserver verifies, and its CA
  - the client certificate of kube-apiserver's front proxy, and its CA
  - the certificates of konnectivity, and their CAs

For a CA whose key is stored elsewhere, certgen creates certificate requests and accepts the
signed certificates.

Results go to standard output, errors to standard error. certgen writes private keys only to
files of mode 0600 and to Secrets, and never prints them.`,
		Example: `  # Issue missing certificates in a cluster, and renew those that are due
  certgen renew --secret widgets-serving --ca-secret widgets-serving-ca --service widgets --namespace demo

  # Issue all certificates of the API server behind the Service demo/widgets in a directory
  certgen init --service widgets --namespace demo --dir pki

  # Verify the certificates in the directory, and list when they expire
  certgen verify --dir pki
  certgen check-expiration --dir pki

  # Install the certificates into the cluster, and verify what the cluster serves and trusts
  certgen apply --dir pki --service widgets --namespace demo --secret widgets-serving
  certgen verify --service widgets --namespace demo --dir pki

  # Replace the serving CA without downtime
  certgen rotate serving-ca --dir pki --service widgets --namespace demo`,
	}
	cmd.SetOut(env.stdout)
	cmd.SetErr(env.stderr)
	cli.AddOutputFlag(cmd, env.format)
	cmd.AddCommand(
		newInitCommand(env), newRenewCommand(env), newRotateCommand(env), newApplyCommand(env), newRequestCommand(env),
		newVerifyCommand(env), newCheckExpirationCommand(env), newKonnectivityCommand(env),
	)
	cli.AddVersion(cmd, "github.com/cloudflare/cfssl")
	return cmd
}
