// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/pkg/conformance"
)

// conformanceFlags holds the flags of the conformance command.
type conformanceFlags struct {
	sample, change, invalid, status, format string
	actions, prepare                        string
	only, known                             []string
	list                                    bool
	parallel                                int
	timeout                                 time.Duration
	security, allowDisruptive               bool
	serverKubeconfig, auditLog, webhooks    string
	url, serverName, caFile                 string
	frontProxyCert, frontProxyKey           string
	cluster                                 clientcmd.ConfigOverrides
	kubeconfig                              string
}

func newConformanceCommand() *cobra.Command {
	f := conformanceFlags{}
	cmd := &cobra.Command{
		Use:   "conformance [RESOURCE.VERSION.GROUP]",
		Short: "Check that a resource behaves as those of the built-in kinds do",
		Long: `Check that a resource behaves as those of the built-in kinds do: any resource that
kube-apiserver serves or proxies.

The checks make objects like the sample, in a namespace of their own where the resource has
namespaces, and delete them. Those that need more than a client, such as the audit log, are skipped
unless a flag says where it is; those of kubectl use the one in the path. Failed checks are shown
with the text that asks for what they check. The exit code is 0 when all that are required or
recommended passed or were skipped, 3 when one failed, 1 when they could not be run, 2 for a wrong
command line.

With --security, other checks are made: what holds when callers lie about who they are, at the own
port of an aggregated API's server. They take the key of kube-apiserver's front proxy, which can
speak for anybody: use it with clusters that you throw away.`,
		Example: `  kubectl aggregation conformance --sample=flunder.yaml
  kubectl aggregation conformance deployments.v1.apps --sample=deployment.yaml \
    --change='{"spec": {"minReadySeconds": 5}}' --invalid='{"spec": {"replicas": -1}}' -o html >report.html
  kubectl aggregation conformance --security --sample=flunder.yaml --url=https://127.0.0.1:8443 --server-name=api.wardle.svc \
    --ca-file=serving-ca.crt --front-proxy-cert=front-proxy-client.crt --front-proxy-key=front-proxy-client.key
  kubectl aggregation conformance --list`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, strings.Join(args, "")) },
	}
	f.addFlags(cmd.Flags())
	return cmd
}

func (f *conformanceFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&f.sample, "sample", "f", "", "File with a valid object, - for standard input.")
	flags.StringVar(&f.change, "change", "",
		"JSON merge patch that changes the sample beyond its metadata. Without it, some checks are skipped.")
	flags.StringVar(&f.invalid, "invalid", "", "JSON merge patch that makes the sample invalid. Likewise.")
	flags.StringVar(&f.status, "status", "", "JSON merge patch of the status, where nobody else writes it. Likewise.")
	flags.StringVar(&f.actions, "actions", "",
		`Bodies of subresources with the verb create, by name: {"cancel": {"reason": "late"}}. Without it, their checks `+
			"are skipped.")
	flags.StringVar(&f.prepare, "prepare", "",
		"File with the objects to which the sample refers. They are created in each namespace in which the run creates "+
			"samples.")
	flags.StringVarP(&f.format, "output", "o", "text", "One of "+strings.Join(conformance.Formats, ", ")+".")
	flags.StringSliceVar(&f.only, "only", nil, "Ids or areas of the checks to run. Default: all.")
	flags.StringSliceVar(&f.known, "known", nil,
		"Ids of checks that are known to fail. The run fails when one of them passes.")
	flags.BoolVar(&f.list, "list", false, "Print the checks and run none.")
	flags.IntVar(&f.parallel, "parallel", 8, "How many checks run at a time.")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "The most that the run may take, without its cleanup.")
	flags.BoolVar(&f.allowDisruptive, "allow-disruptive", false,
		"Make checks that would harm others if the server failed them: for clusters that you throw away.")
	flags.StringVar(&f.serverKubeconfig, "server-kubeconfig", "",
		"Kubeconfig for the server's own port, for the checks of health, metrics and leaks.")
	flags.StringVar(&f.auditLog, "audit-log", "",
		"File that the server writes audit events to, for the checks of audit.")
	flags.StringVar(&f.webhooks, "webhook-address", "",
		"HOST:PORT to serve webhooks at, which the server reaches, for the checks of webhooks. A port of 0 is any.")
	flags.BoolVar(&f.security, "security", false, "Make the checks of security instead.")
	flags.StringVar(&f.url, "url", "", "https://HOST:PORT of the server itself, with --security.")
	flags.StringVar(&f.serverName, "server-name", "",
		"Name in the certificate of the server, with --security. Default: the host of --url.")
	flags.StringVar(&f.caFile, "ca-file", "", "CA of the server's certificate, with --security.")
	flags.StringVar(&f.frontProxyCert, "front-proxy-cert", "",
		"Client certificate of kube-apiserver's front proxy, with --security.")
	flags.StringVar(&f.frontProxyKey, "front-proxy-key", "", "Its key.")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "Path to the kubeconfig file.")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	clientcmd.BindOverrideFlags(&f.cluster, flags, clientcmd.ConfigOverrideFlags{CurrentContext: names.CurrentContext,
		AuthOverrideFlags: clientcmd.AuthOverrideFlags{
			Impersonate:       names.AuthOverrideFlags.Impersonate,
			ImpersonateGroups: names.AuthOverrideFlags.ImpersonateGroups,
		}})
}

func (f *conformanceFlags) run(cmd *cobra.Command, resource string) error {
	checks, execute := conformance.Checks, conformance.Execute
	if f.security {
		checks, execute = conformance.SecurityChecks, conformance.ExecuteSecurity
	}
	if f.list {
		for _, check := range checks() {
			fmt.Fprintf(cmd.OutOrStdout(), "%-40s %-12s %s\n", check.ID, check.Level, check.Text)
		}
		return nil
	}
	target, err := f.target(resource)
	if err != nil {
		return err
	}
	if target.Config, err = f.config(); err != nil {
		return err
	}
	target.Kubectl = f.kubectl()
	done := 0
	target.Progress = func(result conformance.Result, total int) {
		done++
		if result.Outcome == conformance.Failed || done%50 == 0 || done == total {
			fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d: %s %s\n", done, total, result.ID, result.Outcome)
		}
	}
	report, err := execute(cmd.Context(), *target)
	if wrong, ok := errors.AsType[*conformance.TargetError](err); ok {
		return cli.UsageError(wrong.Problems...)
	}
	if err != nil {
		return err
	}
	if err := report.Write(cmd.OutOrStdout(), f.format); err != nil {
		return err
	}
	switch {
	case cmd.Context().Err() != nil && len(report.Left) == 0:
		return errors.New("interrupted; what was made is deleted")
	case report.Incomplete != "":
		return fmt.Errorf("not all checks were made: %s", report.Incomplete)
	case len(report.Unexpected()) > 0 || len(report.Left) > 0:
		return errFailed
	}
	return nil
}

// target returns the target that the flags describe, or all problems with the flags.
func (f *conformanceFlags) target(resource string) (*conformance.Target, error) {
	var problems []error
	target := &conformance.Target{Resource: resource, Only: f.only, Known: f.known, Parallel: f.parallel,
		Timeout: f.timeout, AllowDisruptive: f.allowDisruptive, AuditLog: f.auditLog, WebhookAddress: f.webhooks}
	if !slices.Contains(conformance.Formats, f.format) {
		problems = append(problems, fmt.Errorf("--output is %q, expected one of %s", f.format,
			strings.Join(conformance.Formats, ", ")))
	}
	for _, patch := range []struct {
		flag, text string
		into       *map[string]any
	}{{"change", f.change, &target.Change}, {"invalid", f.invalid, &target.Invalid},
		{"status", f.status, &target.Status}} {
		if patch.text == "" {
			continue
		}
		if err := yaml.Unmarshal([]byte(patch.text), patch.into); err != nil || *patch.into == nil {
			problems = append(problems,
				fmt.Errorf(`--%s is %q, expected a JSON merge patch, such as {"spec": {"replicas": 2}}`,
					patch.flag, patch.text))
		}
	}
	if f.actions != "" {
		if err := yaml.Unmarshal([]byte(f.actions), &target.Actions); err != nil || target.Actions == nil {
			problems = append(problems, fmt.Errorf(
				`--actions is %q, expected bodies by subresource, such as {"cancel": {"reason": "late"}}`, f.actions))
		}
	}
	var err error
	if f.prepare != "" {
		if target.Prepare, err = conformance.PrepareFrom(f.prepare); err != nil {
			problems = append(problems, fmt.Errorf("--prepare: %w", err))
		}
	}
	switch f.sample {
	case "":
		err = errors.New("no sample is given; set --sample to a file with a valid object")
	case "-":
		target.Sample, err = conformance.ReadSample("/dev/stdin")
	default:
		target.Sample, err = conformance.ReadSample(f.sample)
	}
	if err != nil {
		problems = append(problems, err)
	}
	if f.serverKubeconfig != "" {
		if target.Server, err = clientcmd.BuildConfigFromFlags("", f.serverKubeconfig); err != nil {
			problems = append(problems, fmt.Errorf("read --server-kubeconfig: %w", err))
		}
	}
	if f.security {
		direct, more := f.direct()
		problems = append(problems, more...)
		target.Direct = direct
	}
	if len(problems) > 0 {
		return nil, cli.UsageError(problems...)
	}
	return target, nil
}

// direct returns the direct connection that the flags of --security describe, and all problems
// with them.
func (f *conformanceFlags) direct() (*conformance.Direct, []error) {
	var problems []error
	direct := &conformance.Direct{URL: strings.TrimSuffix(f.url, "/"), ServerName: f.serverName}
	address, err := url.Parse(f.url)
	if err != nil || address.Scheme != "https" || address.Port() == "" || strings.Trim(address.Path, "/") != "" {
		problems = append(problems, fmt.Errorf("--url is %q, expected https://HOST:PORT", f.url))
	} else if direct.ServerName == "" {
		direct.ServerName = address.Hostname()
	}
	if direct.CA, err = os.ReadFile(f.caFile); err != nil {
		problems = append(problems, fmt.Errorf("read --ca-file: %w", err))
	}
	if direct.FrontProxy, err = tls.LoadX509KeyPair(f.frontProxyCert, f.frontProxyKey); err != nil {
		problems = append(problems, fmt.Errorf("read --front-proxy-cert and --front-proxy-key: %w", err))
	}
	return direct, problems
}

// kubectl returns the command line of the kubectl in the PATH, for the same cluster and user. It
// returns nil if there is none.
func (f *conformanceFlags) kubectl() []string {
	path, err := exec.LookPath("kubectl")
	if err != nil {
		return nil
	}
	command := []string{path}
	for flag, value := range map[string]string{"kubeconfig": f.kubeconfig, "context": f.cluster.CurrentContext,
		"as": f.cluster.AuthInfo.Impersonate} {
		if value != "" {
			command = append(command, "--"+flag+"="+value)
		}
	}
	for _, group := range f.cluster.AuthInfo.ImpersonateGroups {
		command = append(command, "--as-group="+group)
	}
	return command
}

// config returns the client configuration, found by the loading rules of kubectl.
func (f *conformanceFlags) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &f.cluster).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return config, nil
}
