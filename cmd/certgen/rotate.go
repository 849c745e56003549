// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/output"
	"example.com/extension-apiserver/internal/rotation"
	"example.com/extension-apiserver/internal/usage"
)

// rotationFlags are those that rotate and renew have both.
func rotationFlags(flags *pflag.FlagSet, o *rotation.Options, target *cluster.Options) {
	clusterFlags(flags, target)
	serviceFlags(flags, &o.Service, "(required)")
	addressFlags(flags, target)
	flags.StringVar(&o.Dir, "dir", "", "directory of the certificates, as certgen init made it")
	flags.StringSliceVar(&o.FrontProxyClientDirs, "front-proxy-client", nil,
		"directories from which the kube-apiservers read tls.crt, tls.key and ca.crt, with commas or repeated (default DIR/"+certs.FrontProxyClientDir+")")
	durationVar(flags, &o.Hold, "hold", rotation.DefaultHold, "how long what steps of trust and identity did must stay observed")
	durationVar(flags, &o.Timeout, "timeout", rotation.DefaultTimeout, "how long each step may take to be observed, before the rotation stops in a safe state")
	durationVar(flags, &o.Settle, "settle", rotation.DefaultSettle, "how long the trust ConfigMap must stay without the old CA (front-proxy-ca)")
	durationVar(flags, &o.Lifetime, "lifetime", 0, "how long new leaves last (default 90d)")
	keyTypeFlag(flags, &o.KeyType)
}

func secretFlags(flags *pflag.FlagSet, o *rotation.SecretOptions) {
	flags.StringVar(&o.Secret, "secret", "", "name of the Secret with the serving pair, in the namespace of the Service, instead of --dir")
	flags.StringVar(&o.CASecret, "ca-secret", "", "name of the Secret with the serving CA and its key, in the same namespace")
}

// whereIs tells a directory from Secrets.
func whereIs(flags *pflag.FlagSet, o rotation.Options, s rotation.SecretOptions) (inSecrets bool, err error) {
	if inSecrets = s.Secret+s.CASecret != ""; inSecrets && o.Dir != "" {
		return false, usage.Errorf("expected --dir, or --secret and --ca-secret, found both; give one of them")
	}
	if inSecrets && (flags.Changed("front-proxy-client") || flags.Changed("files-only")) {
		return false, usage.Errorf("expected --dir with --front-proxy-client and --files-only: they are for files")
	}
	return inSecrets, nil
}

func newRotateCommand(env environment) *cobra.Command {
	opts := rotation.Options{Now: env.now}
	var secrets rotation.SecretOptions
	var target cluster.Options
	var format output.Format
	var plan, status, abort bool
	cmd := &cobra.Command{
		Use:   "rotate NAME {--dir DIR | --secret NAME --ca-secret NAME} --service NAME --namespace NAMESPACE",
		Short: "Replace certificates and CAs of a running cluster, each step seen before the next",
		Long:  rotateLong(),
		Example: `  # What would be done, step by step
  certgen rotate serving-ca --plan

  certgen rotate serving-ca --dir pki --service widgets --namespace demo --kubeconfig admin.kubeconfig

  # Where is it, and back again
  certgen rotate serving-ca --dir pki --status
  certgen rotate serving-ca --dir pki --service widgets --namespace demo --abort`,
		Args: oneRotation,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Rotation = args[0]
			if err := errors.Join(format.Validate(), oneOf(plan, status, abort)); err != nil {
				return err
			}
			if plan {
				return printSteps(env, format, opts.Rotation)
			}
			inSecrets, err := whereIs(cmd.Flags(), opts, secrets)
			if err != nil {
				return err
			}
			if !inSecrets {
				return rotateDir(cmd.Context(), env, opts, target, format, status, abort)
			}
			secrets.Service = opts.Service
			return rotateSecrets(cmd.Context(), env, opts, secrets, target, format, status, abort)
		},
	}
	rotationFlags(cmd.Flags(), &opts, &target)
	secretFlags(cmd.Flags(), &secrets)
	cmd.Flags().BoolVar(&plan, "plan", false, "print the steps and look at nothing")
	cmd.Flags().BoolVar(&status, "status", false, "print how far the last rotation came")
	cmd.Flags().BoolVar(&abort, "abort", false, "take an unfinished rotation back; refused once the old CA is distrusted")
	output.AddFlag(cmd, &format)
	return cmd
}

func rotateDir(ctx context.Context, env environment, opts rotation.Options, target cluster.Options, format output.Format, status, abort bool) error {
	if status && opts.Dir != "" {
		return printStatus(env, format, certs.Dir(opts.Dir))
	}
	c, err := open(env, target, opts.Validate())
	if err != nil {
		return err
	}
	opts.Observer, opts.Progress = c, progress(env, format)
	state, err := runOrAbort(abort)(ctx, opts)
	return errors.Join(err, printState(env, format, state))
}

func rotateSecrets(
	ctx context.Context, env environment, opts rotation.Options, secrets rotation.SecretOptions, target cluster.Options, format output.Format, status, abort bool,
) error {
	if opts.Rotation != rotation.Serving && opts.Rotation != rotation.ServingCA {
		return usage.Errorf("expected %s or %s with --secret, found %s: kube-apiserver reads the front proxy's certificates from files", rotation.Serving, rotation.ServingCA, opts.Rotation)
	}
	c, err := open(env, target, secrets.Validate())
	if err != nil {
		return err
	}
	if status {
		store, err := rotation.OpenSecrets(ctx, c, secrets)
		if err != nil {
			return err
		}
		return printStatus(env, format, store)
	}
	opts.Progress = progress(env, format)
	state, err := rotation.InSecrets(ctx, c, secrets, opts, runOrAbort(abort))
	return errors.Join(err, printState(env, format, state))
}

func runOrAbort(abort bool) func(context.Context, rotation.Options) (*rotation.State, error) {
	if abort {
		return rotation.Abort
	}
	return rotation.Run
}

func rotateLong() string {
	return `Replace what certgen init made, while requests go on. NAME is one of

  serving         a new serving certificate of the same CA
  serving-ca      a new serving CA, and a serving certificate of it
  proxy-client    a new client certificate of kube-apiserver's front proxy, of the same CA
  front-proxy-ca  a new CA of the front proxy, and a client certificate of it

Trust comes first, identity second, distrust last. A step is finished when its effect was seen at every endpoint and at
every kube-apiserver, and stayed so for --hold. What is not seen within --timeout stops the rotation where old and new are
both trusted. DIR/rotation/state.json, or the CA's Secret, records each step before it begins and when it was seen: the same command,
run again, also by somebody else, goes on where the last run stopped, however that ended. No kube-apiserver and no API server is restarted.

proxy-client and front-proxy-ca write files that every kube-apiserver must read: name its directories with
--front-proxy-client. Each kube-apiserver reads tls.crt and tls.key there as --proxy-client-cert-file and
--proxy-client-key-file, ca.crt as --requestheader-client-ca-file.

Progress goes to standard error, or as one JSON object per line to standard output with -o json; the record follows it.

Exit codes:
  0  the rotation is done, or taken back
  1  refused, and nothing was changed; or interrupted, or a file could not be written: run it again
  2  wrong usage
  3  blocked: it stopped in a safe state and needs a person; the message says what was not seen`
}

func oneRotation(_ *cobra.Command, args []string) error {
	for _, name := range rotation.Rotations() {
		if len(args) == 1 && args[0] == name {
			return nil
		}
	}
	return usage.Errorf("expected one of %s, found %q", strings.Join(rotation.Rotations(), ", "), args)
}

func oneOf(plan, status, abort bool) error {
	n := 0
	for _, set := range []bool{plan, status, abort} {
		if set {
			n++
		}
	}
	if n > 1 {
		return usage.Errorf("expected at most one of --plan, --status and --abort, found %d", n)
	}
	return nil
}

func progress(env environment, format output.Format) func(rotation.Event) {
	return func(e rotation.Event) {
		if format == output.JSON {
			line, err := json.Marshal(e)
			if err == nil {
				fmt.Fprintf(env.stdout, "%s\n", line)
			}
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

func printSteps(env environment, format output.Format, name string) error {
	steps, err := rotation.Plan(name)
	if err != nil {
		return err
	}
	return format.Print(env.stdout, steps, func(w io.Writer) {
		for i, s := range steps {
			hold := ""
			if s.Holds {
				hold = ", then hold"
			}
			fmt.Fprintf(w, "%d. %s (%s%s)\n   %s\n", i+1, s.Name, s.Kind, hold, s.About)
		}
	})
}

func printStatus(env environment, format output.Format, store certs.Store) error {
	state, err := rotation.ReadState(store)
	if err != nil {
		return err
	}
	if state == nil {
		return fmt.Errorf("%s: expected the record of a rotation, found none; nothing was rotated here", store.Path(rotation.StateSet, rotation.StateFile))
	}
	return printState(env, format, state)
}

// printState shows how long each step took, and what of that was waiting.
func printState(env environment, format output.Format, state *rotation.State) error {
	if state == nil {
		return nil
	}
	return format.Print(env.stdout, state, func(w io.Writer) {
		outcome := string(state.Outcome)
		if outcome == "" {
			outcome = "unfinished"
		}
		fmt.Fprintf(w, "%s: %s, begun at %s\n", state.Rotation, outcome, state.StartedAt.UTC().Format(time.RFC3339))
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "STEP\tUNTIL SEEN\tHELD")
		for _, s := range state.Steps {
			fmt.Fprintf(table, "%s\t%s\t%s\n", s.Name, between(&s.StartedAt, s.ObservedAt), between(s.ObservedAt, s.FinishedAt))
		}
		table.Flush() //nolint:errcheck // as for every print: there is nobody left to tell
		line(w, "blocked", state.Blocked)
	})
}

func between(from, to *time.Time) string {
	if from == nil || to == nil {
		return "-"
	}
	return to.Sub(*from).Round(100 * time.Millisecond).String()
}
