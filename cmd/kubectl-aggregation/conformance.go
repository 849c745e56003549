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
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/pkg/conformance"
)

// conformanceFlags holds the flags of the conformance command.
type conformanceFlags struct {
	sample, change, invalid, status, format string
	actions, prepare, permissions           string
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
		Short: "Check that a resource behaves like a built-in resource",
		Long: `Check that a resource behaves like a built-in resource. The resource can be any that
kube-apiserver serves or proxies. By default it is the resource of the sample.

The checks create objects like the sample, in new namespaces if the resource is namespaced, and
delete them. Checks that need more than a client, such as the audit log, are skipped unless a flag
provides it. Checks of kubectl use the kubectl in the PATH. The report lists failed checks with a
link to the documentation of the behavior.

With --security, run the security checks instead. They send forged identities directly to the
server of an aggregated API. They need the key of kube-apiserver's front proxy, which can
authenticate as any user, so run them only on disposable clusters.`,
		Example: `  # Check the resource of the sample
  kubectl aggregation conformance --sample=flunder.yaml

  # Check deployments, and write a report as HTML
  kubectl aggregation conformance deployments.v1.apps --sample=deployment.yaml \
    --change='{"spec": {"minReadySeconds": 5}}' --invalid='{"spec": {"replicas": -1}}' -o html >report.html

  # Run the security checks on a disposable cluster
  kubectl aggregation conformance --security --sample=flunder.yaml --url=https://127.0.0.1:8443 --server-name=api.wardle.svc \
    --ca-file=serving-ca.crt --front-proxy-cert=front-proxy-client.crt --front-proxy-key=front-proxy-client.key

  # List the checks
  kubectl aggregation conformance --list`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, strings.Join(args, "")) },
	}
	f.addFlags(cmd.Flags())
	return cmd
}

func (f *conformanceFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&f.sample, "sample", "f", "",
		"File with a valid object of the resource, or - for standard input. Required without --list.")
	flags.StringVar(&f.change, "change", "",
		"JSON merge patch that changes the sample beyond its metadata. Checks that need it are skipped without it.")
	flags.StringVar(&f.invalid, "invalid", "",
		"JSON merge patch that makes the sample invalid. Checks that need it are skipped without it.")
	flags.StringVar(&f.status, "status", "", "JSON merge patch that changes the status, if no other client writes it. "+
		"Checks that need it are skipped without it.")
	flags.StringVar(&f.actions, "actions", "",
		`Bodies of subresources with the verb create, by name, such as {"cancel": {"reason": "late"}}. Checks that `+
			"need them are skipped without them.")
	flags.StringVar(&f.prepare, "prepare", "",
		"File or folder with objects to which the sample refers. The run creates them in each of its namespaces.")
	flags.StringVar(&f.permissions, "permissions", "",
		"File with a ClusterRole. The users that checks create get its rules, which the server requires beyond the verbs "+
			"of requests, such as a verb approve.")
	flags.StringVarP(&f.format, "output", "o", "text",
		"Output format. One of: "+strings.Join(conformance.Formats, ", ")+".")
	flags.StringSliceVar(&f.only, "only", nil, "IDs or areas of the checks to run. The default is all checks.")
	flags.StringSliceVar(&f.known, "known", nil,
		"IDs of checks that are known to fail. The run fails if one of them passes.")
	flags.BoolVar(&f.list, "list", false, "List the checks without running them.")
	flags.IntVar(&f.parallel, "parallel", 8, "Maximum number of concurrent checks.")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "Maximum duration of the run, without its cleanup.")
	flags.BoolVar(&f.allowDisruptive, "allow-disruptive", false,
		"Run checks that damage other objects if the server fails them. Use it only on disposable clusters.")
	flags.StringVar(&f.serverKubeconfig, "server-kubeconfig", "",
		"Kubeconfig file for the server's own port, for checks of health, metrics and leaks.")
	flags.StringVar(&f.auditLog, "audit-log", "", "Audit log file of the server, for checks of audit events.")
	flags.StringVar(&f.webhooks, "webhook-address", "", "HOST:PORT on which the run serves webhooks, for checks of "+
		"webhooks. The server must reach it. The port 0 selects a free port.")
	flags.BoolVar(&f.security, "security", false, "Run the security checks instead.")
	flags.StringVar(&f.url, "url", "", "URL of the server's own port, https://HOST:PORT. Required with --security.")
	flags.StringVar(&f.serverName, "server-name", "",
		"Name in the server's certificate, with --security. The default is the host in --url.")
	flags.StringVar(&f.caFile, "ca-file", "",
		"PEM file with the CA of the server's certificate. Required with --security.")
	flags.StringVar(&f.frontProxyCert, "front-proxy-cert", "",
		"PEM file with the client certificate of kube-apiserver's front proxy. Required with --security.")
	flags.StringVar(&f.frontProxyKey, "front-proxy-key", "",
		"PEM file with the private key of the front proxy's certificate. Required with --security.")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "Path to the kubeconfig file to use for CLI requests.")
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
	if target.Config, err = loadConfig(f.kubeconfig, &f.cluster); err != nil {
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
		return errors.New("interrupted; all created objects are deleted")
	case report.Incomplete != "":
		return fmt.Errorf("not all checks ran: %s", report.Incomplete)
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
		problems = append(problems, fmt.Errorf("--output is %q: must be one of %s", f.format,
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
				fmt.Errorf(`--%s is %q: must be a JSON merge patch, such as {"spec": {"replicas": 2}}`,
					patch.flag, patch.text))
		}
	}
	if f.actions != "" {
		if err := yaml.Unmarshal([]byte(f.actions), &target.Actions); err != nil || target.Actions == nil {
			problems = append(problems, fmt.Errorf(
				`--actions is %q: must be bodies by subresource, such as {"cancel": {"reason": "late"}}`, f.actions))
		}
	}
	var err error
	if f.prepare != "" {
		if target.Prepare, err = conformance.PrepareFrom(f.prepare); err != nil {
			problems = append(problems, fmt.Errorf("--prepare: %w", err))
		}
	}
	if f.permissions != "" {
		if target.Permissions, err = readRules(f.permissions); err != nil {
			problems = append(problems, fmt.Errorf("--permissions: %w", err))
		}
	}
	switch f.sample {
	case "":
		err = errors.New("--sample is required: set it to a file with a valid object")
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

// readRules returns the rules of a ClusterRole in a YAML or JSON file.
func readRules(path string) ([]rbacv1.PolicyRule, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	role := rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(data, &role); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if role.Kind != "ClusterRole" || len(role.Rules) == 0 {
		return nil, fmt.Errorf("%s is not a ClusterRole with rules", path)
	}
	return role.Rules, nil
}

// direct returns the direct connection that the flags of --security describe, and all problems
// with them.
func (f *conformanceFlags) direct() (*conformance.Direct, []error) {
	var problems []error
	direct := &conformance.Direct{URL: strings.TrimSuffix(f.url, "/"), ServerName: f.serverName}
	address, err := url.Parse(f.url)
	if err != nil || address.Scheme != "https" || address.Port() == "" || strings.Trim(address.Path, "/") != "" {
		problems = append(problems, fmt.Errorf("--url is %q: must be https://HOST:PORT", f.url))
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
