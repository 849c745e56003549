// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/apply"
)

// commaList is a flag with several values, separated by commas or given by repeating the flag.
// Unlike the lists of pflag it keeps empty values, so that an unset variable is detected.
type commaList []string

func (l *commaList) String() string { return strings.Join(*l, ",") }
func (l *commaList) Type() string   { return "stringSlice" } // the type name that pflag uses for repeatable flags

// Set appends the values.
func (l *commaList) Set(v string) error {
	*l = append(*l, strings.Split(v, ",")...)
	return nil
}

// duration is a flag that accepts Go's units, and also days, weeks and years, which
// time.ParseDuration does not.
type duration time.Duration

func (d *duration) Type() string { return "duration" }

func (d *duration) String() string {
	if *d <= 0 {
		return "0" // pflag omits this value from the help
	}
	return model.Duration(*d).String()
}

// Set parses values such as 90d, 2w and 1.5h.
func (d *duration) Set(text string) error {
	parsed, err := time.ParseDuration(text)
	if err != nil {
		var days model.Duration
		if days, err = model.ParseDuration(text); err != nil {
			return errors.New("expected a duration such as 90d, 36h or 10m")
		}
		parsed = time.Duration(days)
	}
	*d = duration(parsed)
	return nil
}

// oneArgument returns a check for exactly one argument, which must be one of names unless names
// is empty. what describes the argument in the error.
func oneArgument(what string, names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 1 && (len(names) == 0 || slices.Contains(names, args[0])) {
			return nil
		}
		if len(args) == 0 {
			return cli.UsageErrorf("expected %s, found none", what)
		}
		return cli.UsageErrorf("expected %s, found %s", what, quoted(args))
	}
}

func quoted(args []string) string {
	var out []string
	for _, arg := range args {
		out = append(out, strconv.Quote(arg))
	}
	return strings.Join(out, ", ")
}

func oneOf(names []string) cobra.PositionalArgs {
	return oneArgument("one of "+strings.Join(names, ", "), names...)
}

func durationVar(flags *pflag.FlagSet, value *time.Duration, name string, standard time.Duration, about string) {
	*value = standard
	flags.Var((*duration)(value), name, about)
}

// dryRunFlag defines the flag --dry-run, which has the same meaning for all commands.
func dryRunFlag(flags *pflag.FlagSet, dryRun *bool) {
	flags.BoolVar(dryRun, "dry-run", false, "Print what the command would do, and change nothing.")
}

func serviceFlags(flags *pflag.FlagSet, s *certs.Service, required string) {
	flags.StringVar(&s.Name, "service", "", "Name of the Service in front of the API server. "+required)
	flags.StringVarP(&s.Namespace, "namespace", "n", "", "Namespace of the Service. "+required)
}

// nameFlags defines the flags that describe the subjects of certificates. init and request use
// them.
func nameFlags(opts *certs.InitOptions) *pflag.FlagSet {
	flags := pflag.NewFlagSet("names", pflag.ContinueOnError)
	const required = "Required, here or in --config."
	serviceFlags(flags, &opts.Service, required)
	flags.StringVar(&opts.Dir, dirFlag, "",
		"Directory for the certificates. certgen creates it if it does not exist. "+required)
	flags.StringVar(&opts.Service.ClusterDomain, "cluster-domain", certs.DefaultClusterDomain,
		"DNS domain of the cluster.")
	flags.Var((*commaList)(&opts.DNSNames), "dns",
		"Additional DNS names for the serving certificate, comma-separated or repeated.")
	flags.Var((*commaList)(&opts.IPs), "ip", "IP addresses for the serving certificate, comma-separated or repeated.")
	flags.Var((*commaList)(&opts.KonnectivityServerNames), "konnectivity-server-name",
		"DNS names and IP addresses at which kube-apiserver connects to konnectivity's server, comma-separated or "+
			"repeated. Defaults to localhost,127.0.0.1,::1.")
	flags.Var((*commaList)(&opts.KonnectivityAgentServerNames), "konnectivity-agent-server-name",
		"DNS names and IP addresses at which agents connect to konnectivity's server (--proxy-server-host of agents), "+
			"comma-separated or repeated. Required with --with konnectivity.")
	keyTypeFlag(flags, &opts.KeyType)
	return flags
}

// issueFlags defines the flags that control how init issues certificates.
func issueFlags(opts *certs.InitOptions) *pflag.FlagSet {
	flags := pflag.NewFlagSet("issue", pflag.ContinueOnError)
	flags.Var((*commaList)(&opts.With), "with", "Certificates to issue in addition to the serving certificates. "+
		"One or more of: "+strings.Join(certs.SetNames(), ", ")+". Empty for none. Defaults to "+certs.SetFrontProxy+".")
	lifetimeFlags(flags, &opts.Lifetime, &opts.AllowLongLived)
	flags.Var((*commaList)(&opts.ClientCAFiles), "client-ca",
		"Files with the CAs that sign the cluster's users, comma-separated or repeated. certgen refuses to use one of "+
			"them for the front proxy or for konnectivity.")
	return flags
}

// signerFiles holds the address of a remote signer and the paths of its client credentials, as
// set by flags.
type signerFiles struct{ url, profile, ca, cert, key string }

func signerFlags(flags *pflag.FlagSet, s *signerFiles) {
	flags.StringVar(&s.url, "signer", "",
		"URL of a cfssl server that holds the serving CA's key, such as https://signer.example.com:8888. The CA's "+
			"directory or Secret then contains the CA's certificate only.")
	flags.StringVar(&s.profile, "signer-profile", "",
		"Signing profile on the cfssl server. By default the server's default profile.")
	flags.StringVar(&s.ca, "signer-ca", "", "File with the CAs that verify the cfssl server. Required with --signer.")
	flags.StringVar(&s.cert, "signer-cert", "",
		"File with the client certificate for the cfssl server. Required with --signer.")
	flags.StringVar(&s.key, "signer-key", "",
		"File with the private key of the certificate in --signer-cert. Required with --signer.")
}

// read returns nil if no signer is configured.
func (s signerFiles) read() (*certs.RemoteSigner, error) {
	if s == (signerFiles{}) {
		return nil, nil
	}
	out := &certs.RemoteSigner{URL: s.url, Profile: s.profile}
	var err error
	if out.CAs, err = certs.ReadBundle(s.ca); err != nil {
		return nil, &certs.InvalidError{Field: "signer-ca", Value: s.ca,
			Reason: fmt.Sprintf("expected the file with the CAs that verify the signer: %v", err)}
	}
	if out.Client, err = tls.LoadX509KeyPair(s.cert, s.key); err != nil {
		return nil, &certs.InvalidError{Field: "signer-cert", Value: s.cert,
			Reason: fmt.Sprintf("expected the client certificate for the signer, and its key in --signer-key: %v", err)}
	}
	return out, nil
}

func keyTypeFlag(flags *pflag.FlagSet, keyType *certs.KeyType) {
	flags.StringVar((*string)(keyType), "key-type", certs.KeyTypes()[0],
		"Type of new keys. One of: "+strings.Join(certs.KeyTypes(), ", ")+".")
}

func lifetimeFlags(flags *pflag.FlagSet, lifetime *time.Duration, allowLongLived *bool) {
	durationVar(flags, lifetime, "lifetime", 0,
		"Lifetime of new certificates, except CAs, such as 30d. Defaults to 90d, in certgen init to 365d for konnectivity.")
	flags.BoolVar(allowLongLived, "allow-long-lived", false, "Allow certificates with a lifetime of more than 398 days.")
}

func clientFlags(flags *pflag.FlagSet, user *string, groups *[]string, allowSystemMasters *bool, required string) {
	flags.StringVar(user, "user", "", "Name of the user, which becomes the common name of the certificate."+required)
	flags.Var((*commaList)(groups), "group", "Groups of the user, comma-separated or repeated.")
	flags.BoolVar(allowSystemMasters, "allow-system-masters", false,
		"Allow the group system:masters, which no authorizer can restrict.")
}

func clusterFlags(flags *pflag.FlagSet, o *cluster.Options) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "",
		"Path to the kubeconfig file. Defaults to that of kubectl, or to the ServiceAccount of the pod.")
	flags.StringVar(&o.Context, "context", "", "Name of the kubeconfig context. Defaults to the current context.")
}

// addressFlags defines the flags for environments that cannot reach the addresses inside the
// cluster.
func addressFlags(flags *pflag.FlagSet, o *cluster.Options) {
	flags.Var((*commaList)(&o.EndpointAddresses), "endpoint",
		"Addresses (HOST:PORT) of the servers, instead of those in the Service's EndpointSlices, comma-separated or "+
			"repeated.")
	flags.BoolVar(&o.PortForward, "port-forward", false,
		"Connect to the servers' pods through kube-apiserver, as kubectl port-forward does. Requires the permission to "+
			"create pods/portforward.")
	flags.Var((*commaList)(&o.KubeAPIServerURLs), "kube-apiserver",
		"URLs of all kube-apiservers, instead of the endpoints of the Service default/kubernetes, comma-separated or "+
			"repeated.")
}

// open validates the options and connects to the cluster. It returns all problems of the command
// line together. An unusable kubeconfig is a usage error too, because no request was sent.
func open(env environment, o cluster.Options, problems ...error) (apply.Client, error) {
	if err := errors.Join(append(o.Validate(), problems...)...); err != nil {
		return apply.Client{}, err
	}
	c, err := cluster.Open(o)
	if err != nil {
		return apply.Client{}, cli.UsageErrorf("--kubeconfig: %w", err)
	}
	c.Now = env.now
	return apply.Client{Cluster: c}, nil
}
