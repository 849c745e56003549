// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/rotation"
)

// rotationFlags defines the flags that rotate and renew share.
func rotationFlags(flags *pflag.FlagSet, o *rotation.Options, target *cluster.Options, required string) {
	clusterFlags(flags, target)
	serviceFlags(flags, &o.Service, required)
	addressFlags(flags, target)
	target.EndpointsOf = &o.Service // rotations of the front proxy also query the endpoints of other Services
	flags.StringVar(&o.Dir, dirFlag, "", "Directory of certgen init. Required without --secret and --ca-secret.")
	flags.StringSliceVar(&o.FrontProxyClientDirs, "front-proxy-client", nil,
		"Directories from which the kube-apiservers read tls.crt, tls.key and ca.crt, comma-separated or repeated. "+
			"Defaults to DIR/"+certs.FrontProxyClientDir+".")
	durationVar(flags, &o.Hold, "hold", rotation.DefaultHold,
		"How long the effect of a trust or identity step must last before the next step starts.")
	durationVar(flags, &o.Timeout, "timeout", rotation.DefaultTimeout,
		"Time limit for observing the effect of each step. After it the rotation stops in a safe state.")
	durationVar(flags, &o.Settle, "settle", rotation.DefaultSettle,
		"How long the trust ConfigMap must stay without the old CA before the rotation front-proxy-ca continues.")
	durationVar(flags, &o.Lifetime, "lifetime", 0, "Lifetime of new serving and client certificates. Defaults to 90d.")
	keyTypeFlag(flags, &o.KeyType)
}

func secretFlags(flags *pflag.FlagSet, o *rotation.Options) {
	flags.StringVar(&o.Secret, "secret", "",
		"Name of the Secret with the serving certificate, in the namespace of the Service. Use with --ca-secret, instead "+
			"of --dir.")
	flags.StringVar(&o.CASecret, "ca-secret", "",
		"Name of the Secret with the serving CA and its key, in the namespace of the Service. Use with --secret, instead "+
			"of --dir.")
}

// useSecrets reports whether the certificates are in Secrets instead of a directory. It returns a
// usage error if the flags mix both.
func useSecrets(flags *pflag.FlagSet, o rotation.Options) (inSecrets bool, err error) {
	if inSecrets = o.Secret+o.CASecret != ""; inSecrets && o.Dir != "" {
		return false, cli.UsageErrorf("expected --dir, or --secret and --ca-secret, found both; use one of them")
	}
	if inSecrets && (flags.Changed("front-proxy-client") || flags.Changed("files-only")) {
		return false, cli.UsageErrorf("expected --dir with --front-proxy-client and --files-only, found --secret")
	}
	if !inSecrets && flags.Changed("force-conflicts") {
		return false, cli.UsageErrorf(
			"expected --secret and --ca-secret with --force-conflicts; for a directory use certgen apply")
	}
	return inSecrets, nil
}

type rotateFlags struct {
	opts          rotation.Options
	target        cluster.Options
	status, abort bool
	signer        signerFiles
	newCA         string
}

func newRotateCommand(env environment) *cobra.Command {
	f := rotateFlags{opts: rotation.Options{Now: env.now}}
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "rotate NAME {--dir DIR | --secret NAME --ca-secret NAME} --service NAME --namespace NAMESPACE",
		Short: "Replace certificates and CAs of a running cluster without downtime",
		Long:  rotateLong,
		Example: `  # Print the steps
  certgen rotate serving-ca --dry-run

  # Replace the serving CA and the serving certificate
  certgen rotate serving-ca --dir pki --service widgets --namespace demo --kubeconfig admin.kubeconfig

  # Print the progress of the rotation, and reverse it
  certgen rotate serving-ca --dir pki --status
  certgen rotate serving-ca --dir pki --service widgets --namespace demo --abort`,
		Args: oneOf(rotation.Rotations()),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(atMostOne(dryRun, f.status, f.abort)); err != nil {
				return err
			}
			if dryRun {
				return printSteps(env, args[0])
			}
			inSecrets, err := useSecrets(cmd.Flags(), f.opts)
			if err != nil {
				return err
			}
			if err := f.readSigner(); err != nil {
				return err
			}
			f.opts.Rotation, f.opts.Progress = args[0], progress(env)
			state, err := f.rotate(cmd.Context(), env, inSecrets)
			return errors.Join(err, printState(env, state))
		},
	}
	rotationFlags(cmd.Flags(), &f.opts, &f.target, "Required without --dry-run and --status.")
	secretFlags(cmd.Flags(), &f.opts)
	signerFlags(cmd.Flags(), &f.signer)
	cmd.Flags().StringVar(&f.newCA, "new-ca", "",
		"File with the certificate of a new serving CA whose key the cfssl server in --signer holds. Used by the "+
			"rotation serving-ca. By default certgen issues a new CA.")
	dryRunFlag(cmd.Flags(), &dryRun)
	cmd.Flags().BoolVar(&f.status, "status", false, "Print the progress of the last rotation of these certificates.")
	cmd.Flags().BoolVar(&f.abort, "abort", false,
		"Reverse an unfinished rotation. Refused after a step of kind distrust has started.")
	return cmd
}

func (f *rotateFlags) readSigner() (err error) {
	if f.opts.Signer, err = f.signer.read(); err != nil || f.newCA == "" {
		return err
	}
	if f.opts.NewCA, err = certs.ReadCertificateFile(f.newCA); err != nil {
		return &certs.InvalidError{Field: "new-ca", Value: f.newCA,
			Reason: fmt.Sprintf("expected a file with one certificate: %v", err)}
	}
	return nil
}

// rotate runs, aborts or reads a rotation. It returns the rotation's record, which is nil if
// there is none.
func (f *rotateFlags) rotate(ctx context.Context, env environment, inSecrets bool) (*rotation.State, error) {
	run := rotation.Run
	if f.abort {
		run = rotation.Abort
	}
	if !inSecrets && f.status && f.opts.Dir != "" {
		return readState(certs.Dir(f.opts.Dir), f.opts.Rotation)
	}
	if inSecrets && f.opts.Rotation != rotation.Serving && f.opts.Rotation != rotation.ServingCA {
		return nil, cli.UsageErrorf(
			"expected %s or %s with --secret, found %s: kube-apiserver reads the front proxy's certificates from files",
			rotation.Serving, rotation.ServingCA, f.opts.Rotation)
	}
	c, err := open(env, f.target, f.opts.Validate())
	if err != nil {
		return nil, err
	}
	f.opts.Observer = c
	if f.status {
		store, err := rotation.OpenSecrets(ctx, f.opts)
		if err != nil {
			return nil, err
		}
		return readState(store, f.opts.Rotation)
	}
	return run(ctx, f.opts)
}

const rotateLong = `Replace certificates of certgen init while the API continues to serve requests. NAME is one of:

  serving         the serving certificate, signed by the same CA
  serving-ca      the serving CA and the serving certificate
  proxy-client    the client certificate of kube-apiserver's front proxy, signed by the same CA
  front-proxy-ca  the front proxy's CA and its client certificate

certgen adds the new CA before it switches the certificate, and removes the old CA last. A step
is complete when certgen has observed its effect at every endpoint and at every kube-apiserver,
and the effect has lasted for --hold. If certgen does not observe the effect within --timeout,
the rotation stops in a state in which old and new certificates are trusted. certgen restarts no
kube-apiserver and no API server.

certgen records each step before it starts and after it has observed the effect: in
DIR/rotation/state.json, in DIR/front-proxy-rotation/state.json for the front proxy, or in the
CA's Secret. To continue after an interruption, run the same command again, also from another
machine.

proxy-client and front-proxy-ca write files that every kube-apiserver must read: name their
directories with --front-proxy-client. Each kube-apiserver must read tls.crt and tls.key as
--proxy-client-cert-file and --proxy-client-key-file, and ca.crt as
--requestheader-client-ca-file. certgen also reads kubeadm's front-proxy-ca.crt,
front-proxy-client.crt and their keys in DIR. It moves them into DIR/front-proxy-ca and
DIR/front-proxy-client, and replaces them with links.

Progress goes to standard error. With -o json, each event is one JSON object per line on standard
output, and the record is the last object.`

func atMostOne(modes ...bool) error {
	if n := len(slices.DeleteFunc(modes, func(on bool) bool { return !on })); n > 1 {
		return cli.UsageErrorf("expected at most one of --dry-run, --status and --abort, found %d", n)
	}
	return nil
}

func progress(env environment) func(rotation.Event) {
	return func(e rotation.Event) {
		if *env.format == cli.JSON {
			_ = json.NewEncoder(env.stdout).Encode(e) // a failed print cannot be reported
			return
		}
		text := e.Rotation
		if e.Step != "" {
			text += " " + e.Step
		}
		if text += ": " + string(e.Type); e.Message != "" {
			text += ": " + e.Message
		}
		fmt.Fprintf(env.stderr, "certgen: [%6.1fs] %s\n", e.ElapsedSeconds, text)
	}
}

func printSteps(env environment, name string) error {
	steps := rotation.Plan(name)
	return env.format.Print(env.stdout, steps, func(w io.Writer) {
		for i, s := range steps {
			hold := ""
			if s.Holds {
				hold = ", then hold"
			}
			fmt.Fprintf(w, "%d. %s (%s%s)\n   %s\n", i+1, s.Name, s.Kind, hold, s.About)
		}
	})
}

func readState(store certs.Store, name string) (*rotation.State, error) {
	state, err := rotation.ReadState(store, name)
	if err == nil && state == nil {
		err = fmt.Errorf("%s: expected the record of a rotation of these certificates, found none",
			store.Path(rotation.StateSet(name), rotation.StateFile))
	}
	return state, err
}

// printState prints for each step the time until its effect was observed and the time it was
// held.
func printState(env environment, state *rotation.State) error {
	if state == nil {
		return nil
	}
	return env.format.Print(env.stdout, state, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %s, started at %s\n", state.Rotation, cmp.Or(string(state.Outcome), "unfinished"),
			state.StartedAt.UTC().Format(time.RFC3339))
		table(w, "STEP\tOBSERVED AFTER\tHELD FOR", state.Steps, func(s rotation.StepState) []string {
			return []string{s.Name, elapsed(&s.StartedAt, s.ObservedAt), elapsed(s.ObservedAt, s.FinishedAt)}
		})
		line(w, "blocked", state.Blocked)
	})
}

func elapsed(from, to *time.Time) string {
	if from == nil || to == nil {
		return "-"
	}
	return to.Sub(*from).Round(100 * time.Millisecond).String()
}
