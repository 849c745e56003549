// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"example.com/extension-apiserver/internal/filters"
)

// defaultPort is above 1024, so that the server needs no privilege to bind it.
const defaultPort = 6443

// Options are the flags of the server.
type Options struct {
	// ServerRun contains request limits, timeouts and the shutdown sequence.
	ServerRun *genericoptions.ServerRunOptions
	// Recommended contains serving, authentication, authorization, audit, admission and other
	// options. Its Etcd is nil, because the library would apply it in a way that ignores
	// --storage-media-type.
	Recommended *genericoptions.RecommendedOptions
	// Etcd is also used with the embedded etcd, which sets its servers.
	Etcd *genericoptions.EtcdOptions
	// DataDir is the directory of the embedded etcd, which is used if no etcd servers are given.
	DataDir string
	Trust   TrustOptions
	Watches WatchLimits
	Logs    *logsapi.LoggingConfiguration

	api    API
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	// taken contains an error for each flag of the API whose name the server uses.
	taken []error
	// runtime is filled before admission plugins are created.
	runtime *Runtime
	// stores is false if no kind is stored in etcd.
	stores bool
}

// setGates adds the feature gates of the log flags, which are not among the library's own, and
// changes defaults. Neither is possible once there are flags. It also enables streaming of
// metadata lists. The feature gates of k8s.io libraries belong to the process, so two servers in
// one process share them.
var setGates = sync.OnceValue(func() error {
	filters.StreamMetadata()
	gates := utilfeature.DefaultMutableFeatureGate
	return errors.Join(
		logsapi.AddFeatureGates(gates),
		// According to its code, etcd's client 3.7.0 can keep a goroutine and two chunks of a
		// streamed list whose client disconnects early.
		gates.OverrideDefault(features.EtcdRangeStream, false),
		// According to its code, each compressed watch that begins with a list keeps a gzip
		// writer, and a server allows 2,000 watches.
		gates.OverrideDefault(features.WatchListCompression, false),
		// Lists would disclose the name of an object that cannot be decoded to users who may not
		// read it.
		gates.OverrideDefault(features.AllowUnsafeMalformedObjectDeletion, false),
	)
})

// NewOptions returns the default options of a server for the API. It returns all validation
// errors if the API is invalid.
func NewOptions(api API) (*Options, error) {
	scheme, stored, err := api.check()
	if err != nil {
		return nil, err
	}
	if err := setGates(); err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme)
	recommended := genericoptions.NewRecommendedOptions("", nil)
	recommended.Etcd = nil
	recommended.SecureServing.BindPort = defaultPort
	// Without a kubeconfig and outside a cluster, no caller can be authenticated: refuse to
	// start.
	recommended.Authentication.RemoteKubeConfigFileOptional = false
	recommended.Authorization.RemoteKubeConfigFileOptional = false
	// Profiles and the values of flags disclose more about a server than its users need to know.
	recommended.Features.EnableProfiling = false

	codec := codecs.LegacyCodec(api.storageVersions()...)
	serverRun := genericoptions.NewServerRunOptions()
	// The library's default is 0: open watches are not notified when the server stops, and delay
	// the shutdown until the request timeout of 60 s. The aggregator and kube-controller-manager
	// always have open watches.
	serverRun.ShutdownWatchTerminationGracePeriod = 10 * time.Second

	etcd := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", codec))
	// Built-in kinds are also stored in protobuf, which is smaller than JSON.
	etcd.DefaultStorageMediaType = runtime.ContentTypeProtobuf
	// The maximum age of the object counts and sizes by which lists are admitted.
	etcd.StorageConfig.CountMetricPollPeriod = 10 * time.Second
	// Each deletion waits for etcd to sync to disk. With the library's default of 1, deletions
	// are sequential: three members on one slow disk deleted 40 objects per second, and a
	// namespace with 10,000 objects would take 4 minutes.
	etcd.DeleteCollectionWorkers = 8

	runtime := &Runtime{}
	api.addPlugins(recommended.Admission, runtime)
	addQuota(recommended.Admission)
	recommended.ExtraAdmissionInitializers = func(c *genericapiserver.RecommendedConfig) ([]admission.PluginInitializer,
		error) {
		runtime.fill(c)
		params, err := newParamInitializer(c)
		return []admission.PluginInitializer{quotaInitializer{}, params}, err
	}
	return &Options{
		ServerRun:   serverRun,
		Recommended: recommended,
		Etcd:        etcd,
		DataDir:     "/var/lib/" + api.Name, // where a container mounts a volume
		Trust:       TrustOptions{BearerTokens: true},
		Watches:     WatchLimits{PerUser: 1000, Total: 2000}, // 150 MiB of the 512 MiB that the manifests allow
		Logs:        logsapi.NewLoggingConfiguration(),
		api:         api,
		scheme:      scheme,
		codecs:      codecs,
		runtime:     runtime,
		stores:      len(stored) > 0,
	}, nil
}

// Flags returns the flags by section of the help text.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var fss cliflag.NamedFlagSets
	// Sections are printed in the order in which they are created.
	fss.FlagSet(o.api.Name)
	own := fss.FlagSet("server")
	o.Recommended.CoreAPI.AddFlags(own)
	setUsage(own, "kubeconfig", "Kubeconfig file of the cluster. Required outside of a pod. "+
		"In a pod, the default is the ServiceAccount of the pod.")
	serving := fss.FlagSet("serving")
	addExcept(serving, o.Recommended.SecureServing.AddFlags,
		// A certificate that the server makes for itself can be trusted by no APIService.
		"cert-dir")
	setUsage(serving, "secure-port", "Port on which to serve HTTPS, 1 to 65535.")
	setUsage(serving, "tls-cert-file",
		"PEM file with the serving certificate, followed by its intermediate CAs. Required.")
	setUsage(serving, "tls-private-key-file", "PEM file with the private key of the serving certificate. Required.")
	addExcept(fss.FlagSet("authentication"), o.Recommended.Authentication.AddFlags,
		// Trust comes only from the live ConfigMap of the cluster.
		"client-ca-file", "requestheader-client-ca-file", "requestheader-allowed-names",
		"requestheader-username-headers",
		"requestheader-uid-headers", "requestheader-group-headers", "requestheader-extra-headers-prefix",
		"authentication-skip-lookup", "authentication-tolerate-lookup-failure")
	setUsage(fss.FlagSet("authentication"), "authentication-kubeconfig",
		"Kubeconfig file with the permissions to create tokenreviews.authentication.k8s.io and to read the ConfigMap "+
			"kube-system/extension-apiserver-authentication. The default is --kubeconfig.")
	o.Trust.addFlags(own)
	authorization := fss.FlagSet("authorization")
	o.Recommended.Authorization.AddFlags(authorization)
	setUsage(authorization, "authorization-kubeconfig", "Kubeconfig file with the permission to create "+
		"subjectaccessreviews.authorization.k8s.io. The default is --kubeconfig.")
	own.StringSliceVar(&o.Recommended.Authorization.AlwaysAllowGroups, "authorization-always-allow-groups",
		o.Recommended.Authorization.AlwaysAllowGroups,
		"Groups whose members are authorized for every request without a SubjectAccessReview. "+
			"kube-apiserver authorizes system:masters for every request too.")
	if o.stores && o.api.EmbeddedEtcd != nil {
		own.StringVar(&o.DataDir, "data-dir", o.DataDir,
			"Directory of the embedded etcd, which runs if --etcd-servers is not set. "+
				"The server creates it with mode 0700. One server at a time can use it.")
	}
	if o.stores {
		addExcept(fss.FlagSet("storage"), o.Etcd.AddFlags,
			// The library ignores them.
			"default-watch-cache-size", "etcd-db-metric-poll-interval")
	}
	o.Recommended.Admission.AddFlags(fss.FlagSet("admission"))
	o.Recommended.Audit.AddFlags(fss.FlagSet("auditing"))
	o.ServerRun.AddUniversalFlags(fss.FlagSet("requests and shutdown"))
	o.Watches.addFlags(own)
	o.Recommended.Features.AddFlags(fss.FlagSet("features"))
	o.Recommended.EgressSelector.AddFlags(fss.FlagSet("egress selector"))
	o.Recommended.Traces.AddFlags(fss.FlagSet("traces"))
	logsapi.AddFlags(o.Logs, fss.FlagSet("logs"))
	o.addAPIFlags(&fss)
	return fss
}

// addAPIFlags adds the flags of the API. It records flags whose names the server uses, for
// Validate.
func (o *Options) addAPIFlags(fss *cliflag.NamedFlagSets) {
	if len(o.api.Flags) == 0 {
		return
	}
	own := pflag.NewFlagSet(o.api.Name, pflag.ContinueOnError)
	for _, flags := range o.api.Flags {
		flags.AddFlags(own)
	}
	o.taken = nil
	own.VisitAll(func(f *pflag.Flag) {
		for _, section := range fss.FlagSets {
			if section.Lookup(f.Name) != nil {
				o.taken = append(o.taken,
					fmt.Errorf("flag --%s of the API: the server already has a flag with this name", f.Name))
				return
			}
		}
		fss.FlagSet(o.api.Name).AddFlag(f)
	})
}

// setUsage replaces the usage of a library flag that promises what this server does not do.
func setUsage(fs *pflag.FlagSet, name, usage string) { fs.Lookup(name).Usage = usage }

// addExcept adds the flags of one part of the library, without those named.
func addExcept(fs *pflag.FlagSet, add func(*pflag.FlagSet), names ...string) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	add(all)
	all.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(names, f.Name) {
			fs.AddFlag(f)
		}
	})
}

// Complete sets defaults that depend on other flags: --kubeconfig is the default of the other
// kubeconfig flags.
func (o *Options) Complete() {
	kubeconfig := o.Recommended.CoreAPI.CoreAPIKubeconfigPath
	if o.Recommended.Authentication.RemoteKubeConfigFile == "" {
		o.Recommended.Authentication.RemoteKubeConfigFile = kubeconfig
	}
	if o.Recommended.Authorization.RemoteKubeConfigFile == "" {
		o.Recommended.Authorization.RemoteKubeConfigFile = kubeconfig
	}
}

// Validate returns all validation errors, approximately in the order of the sections of the help
// text. It sets the feature gates, because other checks depend on them.
func (o *Options) Validate() []error {
	var errs []error
	gates := o.ServerRun.ComponentGlobalsRegistry.Set()
	if gates != nil {
		errs = append(errs,
			fmt.Errorf("--feature-gates or --emulated-version: %w; --help lists the feature gates", gates))
	}
	errs = append(errs, o.taken...)
	errs = append(errs, o.validateKubeconfigs()...)
	errs = append(errs, o.Trust.validate()...)
	errs = append(errs, o.Watches.validate()...)
	errs = append(errs, o.validateServing()...)
	errs = append(errs, o.ValidateStorage()...)
	for _, err := range o.ServerRun.Validate() {
		// It repeats the error of Set.
		if gates == nil || err.Error() != gates.Error() {
			errs = append(errs, err)
		}
	}
	errs = append(errs, o.Recommended.Validate()...)
	for _, err := range logsapi.Validate(o.Logs, utilfeature.DefaultFeatureGate, nil) {
		errs = append(errs, fmt.Errorf("logging flags: %w", err))
	}
	for _, flags := range o.api.Flags {
		errs = append(errs, flags.Validate()...)
	}
	return errs
}

// validateServing reads the certificate, so that a mismatched key pair is reported at start.
func (o *Options) validateServing() []error {
	var errs []error
	serving := o.Recommended.SecureServing
	pair := serving.ServerCert.CertKey
	// The library reports other invalid port numbers.
	if serving.BindPort == 0 {
		errs = append(errs, errors.New("--secure-port is 0: must be between 1 and 65535"))
	}
	if pair.CertFile == "" || pair.KeyFile == "" {
		return append(errs, errors.New("--tls-cert-file and --tls-private-key-file are required; "+
			"issue a certificate with: certgen init --service SERVICE --namespace NAMESPACE --dir DIR"))
	}
	if _, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile); err != nil {
		errs = append(errs, fmt.Errorf("read --tls-cert-file %s and --tls-private-key-file %s: %w; "+
			"check them with: certgen verify %s", pair.CertFile, pair.KeyFile, err, pair.CertFile))
	}
	return errs
}

func (o *Options) validateKubeconfigs() []error {
	var errs []error
	kubeconfig := o.Recommended.CoreAPI.CoreAPIKubeconfigPath
	if _, err := loadKubeconfig(kubeconfig); err != nil && kubeconfig == "" {
		errs = append(errs, fmt.Errorf("--kubeconfig is required outside of a pod: %w", err))
	} else if err != nil {
		errs = append(errs, fmt.Errorf("read --kubeconfig %s: %w", kubeconfig, kubeconfigError(err)))
	}
	for _, flag := range []struct{ name, path string }{
		{"authentication-kubeconfig", o.Recommended.Authentication.RemoteKubeConfigFile},
		{"authorization-kubeconfig", o.Recommended.Authorization.RemoteKubeConfigFile},
	} {
		if flag.path == kubeconfig {
			continue
		}
		if _, err := loadKubeconfig(flag.path); err != nil {
			errs = append(errs, fmt.Errorf("read --%s %s: %w", flag.name, flag.path, kubeconfigError(err)))
		}
	}
	return errs
}

// kubeconfigError replaces the error for a file without a cluster, which advises to set
// KUBERNETES_MASTER.
func kubeconfigError(err error) error {
	if clientcmd.IsEmptyConfig(err) {
		return errors.New("the file contains no configuration")
	}
	return err
}

// embedded says whether the server runs its own etcd.
func (o *Options) embedded() bool {
	return o.api.EmbeddedEtcd != nil && len(o.Etcd.StorageConfig.Transport.ServerList) == 0
}
