// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/doctor"
)

// The exit codes of the doctor.
const (
	exitFindings = 1
	exitUnknown  = 2
)

// watchPeriod is the interval of --watch.
const watchPeriod = 5 * time.Second

// doctorFlags holds the flags of the doctor command.
type doctorFlags struct {
	format       string
	quiet, watch bool
	pre          bool
	inCluster    bool
	pod          doctor.PodOptions
	timeout      time.Duration
	cluster      clientcmd.ConfigOverrides
	kubeconfig   string
}

func newDoctorCommand() *cobra.Command {
	f := doctorFlags{}
	cmd := &cobra.Command{
		Use:   "doctor [APISERVICE...]",
		Short: "Find the root cause of a broken aggregated API",
		Long: `Find the root cause of a broken aggregated API of any server. By default, diagnose every APIService
that has a Service.

The report has a line for each layer, from this machine to the effects in the cluster: ✓ for a
healthy layer, ✗ for one with findings, and – for one that could not be checked. It then lists the
root causes, each with its evidence, its effect, a fix, and the findings that it explains.

Without --in-cluster, the doctor changes nothing. It reads no Secrets. It creates SubjectAccessReviews and
IdentityReviews, which are stored nowhere. If an API does not work, it searches the logs of its pods
for known messages. With --in-cluster, it also creates a Job, whose pod connects to the server, and
deletes it. The report lists what the user has no permission to read, and the doctor
diagnoses the rest.

Exit codes:
  0  no findings
  1  at least one root cause
  2  no findings, but not everything could be checked; or the APIServices could not be read`,
		Example: `  # Diagnose all aggregated APIs
  kubectl aggregation doctor

  # Diagnose one APIService, and print only the root causes
  kubectl aggregation doctor v1beta1.metrics.k8s.io --quiet

  # Check a cluster before you install an aggregated API
  kubectl aggregation doctor --pre

  # Also connect to the servers of broken APIs from a pod, to tell whether only kube-apiserver fails to
  kubectl aggregation doctor --in-cluster --image=registry.example.com/kubectl-aggregation:v1.0.0

  # Report again whenever the diagnosis changes
  kubectl aggregation doctor --watch

  # Print the report as JSON
  kubectl aggregation doctor -o json`,
		RunE: f.run,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return f.complete(cmd.Context(), args), cobra.ShellCompDirectiveNoFileComp
		},
	}
	f.addFlags(cmd.Flags())
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions(doctor.Formats, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (f *doctorFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&f.format, "output", "o", "text", "Output format. One of: "+strings.Join(doctor.Formats, ", ")+".")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "Print only the root causes, if the output format is text.")
	flags.BoolVarP(&f.watch, "watch", "w", false, "Diagnose every 5 seconds, and print a report when it changes.")
	flags.BoolVar(&f.pre, "pre", false,
		"Also check that a server can be installed: the aggregation layer, the required APIs, and your permissions.")
	flags.BoolVar(&f.inCluster, "in-cluster", false,
		"Also connect to the servers of APIs that do not work from a pod, which is deleted afterwards.")
	flags.StringVar(&f.pod.Image, "image", "", "Image of kubectl-aggregation for the pod of --in-cluster.")
	flags.StringVarP(&f.pod.Namespace, "namespace", "n", "default", "Namespace of the pod of --in-cluster.")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "Maximum duration of a diagnosis.")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "Path to the kubeconfig file to use for CLI requests.")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	// --timeout replaces the first. kube-apiserver has no basic authentication, and no request of
	// the doctor depends on the namespace of the context.
	names.Timeout, names.ContextOverrideFlags.Namespace = clientcmd.FlagInfo{}, clientcmd.FlagInfo{}
	names.AuthOverrideFlags.Username, names.AuthOverrideFlags.Password = clientcmd.FlagInfo{}, clientcmd.FlagInfo{}
	clientcmd.BindOverrideFlags(&f.cluster, flags, names)
}

func (f *doctorFlags) run(cmd *cobra.Command, names []string) error {
	var problems []error
	if !slices.Contains(doctor.Formats, f.format) {
		problems = append(problems, fmt.Errorf("--output is %q: must be one of %s", f.format,
			strings.Join(doctor.Formats, ", ")))
	}
	if f.timeout <= 0 {
		problems = append(problems, fmt.Errorf("--timeout is %s: must be positive", f.timeout))
	}
	if f.inCluster != (f.pod.Image != "") {
		problems = append(problems, errors.New("--in-cluster and --image must be set together"))
	}
	if len(problems) > 0 {
		return cli.UsageError(problems...)
	}
	config, err := loadConfig(f.kubeconfig, &f.cluster)
	if err != nil {
		return couldNotRun(err)
	}
	if f.watch {
		return f.repeat(cmd.Context(), cmd.OutOrStdout(), config, names)
	}
	report, err := f.diagnose(cmd.Context(), config, names)
	if report != nil {
		err = errors.Join(err, report.Write(cmd.OutOrStdout(), f.format, f.quiet))
	}
	switch {
	case err != nil:
		return couldNotRun(err)
	case len(report.RootCauses) > 0:
		return &cli.Error{Code: exitFindings}
	case len(report.Unread) > 0:
		return couldNotRun(fmt.Errorf("not everything could be checked: %d facts could not be read", len(report.Unread)))
	}
	return nil
}

// couldNotRun returns an error with each cause on a line of its own.
func couldNotRun(err error) error {
	if wrong, ok := errors.AsType[*doctor.NameError](err); ok {
		return &cli.Error{Code: exitUnknown, Errs: wrong.Problems, NoHint: true}
	}
	return &cli.Error{Code: exitUnknown, Errs: []error{err}, NoHint: true}
}

// completionTimeout is how long a shell waits for the names of APIServices.
const completionTimeout = 3 * time.Second

// complete returns the names of the aggregated APIServices that are not arguments yet. It returns
// none if they cannot be read.
func (f *doctorFlags) complete(ctx context.Context, args []string) []string {
	config, err := loadConfig(f.kubeconfig, &f.cluster)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	names, err := doctor.Names(ctx, config)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) })
}

// diagnose returns an error if it could not read the APIServices, and a report if it has a finding
// or no error.
func (f *doctorFlags) diagnose(ctx context.Context, config *rest.Config, names []string) (*doctor.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	o := doctor.Options{APIServices: names, Pre: f.pre}
	if f.inCluster {
		o.Pod = &f.pod
	}
	facts, err := doctor.Collect(ctx, config, o)
	if facts == nil {
		return nil, err
	}
	report := doctor.NewReport(facts)
	if err != nil && len(report.RootCauses) == 0 {
		return nil, err
	}
	return report, err
}

// repeat diagnoses until the context is done, and prints each report whose root causes differ from
// those of the previous one.
func (f *doctorFlags) repeat(ctx context.Context, w io.Writer, config *rest.Config, names []string) error {
	ticker := time.NewTicker(watchPeriod)
	defer ticker.Stop()
	before := ""
	for {
		report, err := f.diagnose(ctx, config, names)
		now := ""
		if report != nil {
			now = report.Summary()
		} else {
			now = err.Error()
		}
		if now != before && ctx.Err() == nil {
			before = now
			if report == nil {
				fmt.Fprintf(w, "%v\n", err)
			} else if err := report.Write(w, f.format, f.quiet); err != nil {
				return couldNotRun(err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
