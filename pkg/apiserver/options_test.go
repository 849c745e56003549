// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"example.com/extension-apiserver/internal/certs"
)

// TestDefaults checks the defaults that differ from the library's. NewOptions states the reason
// for each.
func TestDefaults(t *testing.T) {
	o := mustOptions(testAPI)
	for _, tc := range []struct {
		name      string
		got, want any
	}{
		{"profiling", o.Recommended.Features.EnableProfiling, false},
		{"port", o.Recommended.SecureServing.BindPort, 6443},
		{"storage media type", o.Etcd.DefaultStorageMediaType, runtime.ContentTypeProtobuf},
		{"grace period of watches", o.ServerRun.ShutdownWatchTerminationGracePeriod, 10 * time.Second},
		{"start without authentication", o.Recommended.Authentication.RemoteKubeConfigFileOptional, false},
		{"start without authorization", o.Recommended.Authorization.RemoteKubeConfigFileOptional, false},
		{"etcd prefix", o.Etcd.StorageConfig.Prefix, "/registry"},
		{"embedded etcd", o.embedded(), true},
		{"data directory", o.DataDir, "/var/lib/extension-apiserver"},
		{"the library's own etcd options", o.Recommended.Etcd == nil, true},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, tc.got, tc.want)
		}
	}
}

// TestWithoutEmbeddedEtcd: a server without an embedded etcd has no flag --data-dir and requires
// --etcd-servers.
func TestWithoutEmbeddedEtcd(t *testing.T) {
	api := testAPI
	api.EmbeddedEtcd = nil
	o := mustOptions(api)
	if flag := o.StorageFlags().Lookup("data-dir"); flag != nil {
		t.Errorf("flags: got --data-dir (%s), want none", flag.Usage)
	}
	if got, want := fmt.Sprint(o.ValidateStorage()), "--etcd-servers must be specified"; !strings.Contains(got, want) {
		t.Errorf("without --etcd-servers: got %s, want %s", got, want)
	}
	o.Etcd.StorageConfig.Transport.ServerList = []string{"https://127.0.0.1:2379"}
	if problems := o.ValidateStorage(); len(problems) > 0 {
		t.Errorf("with --etcd-servers: got %v, want no error", problems)
	}
}

// TestFlags: the server has no flags that could weaken the trust.
func TestFlags(t *testing.T) {
	all := sets.New[string]()
	fss := mustOptions(testAPI).Flags()
	for _, fs := range fss.FlagSets {
		fs.VisitAll(func(flag *pflag.Flag) { all.Insert(flag.Name) })
	}
	for _, name := range []string{
		"client-ca-file", "requestheader-client-ca-file", "requestheader-allowed-names",
		"requestheader-username-headers",
		"requestheader-uid-headers", "requestheader-group-headers", "requestheader-extra-headers-prefix",
		"authentication-skip-lookup", "authentication-tolerate-lookup-failure", "cert-dir",
	} {
		if all.Has(name) {
			t.Errorf("flags: got --%s, want none: trust comes from the cluster", name)
		}
	}
	if want := sets.New("kubeconfig", "secure-port", "data-dir", "etcd-servers", "profiling", "feature-gates", "v",
		"authentication-kubeconfig"); !all.IsSuperset(want) {
		t.Errorf("flags: got none of %v, want all of them", sets.List(want.Difference(all)))
	}
}

// TestComplete: --kubeconfig is used for all purposes, unless one has its own kubeconfig.
func TestComplete(t *testing.T) {
	for _, tc := range []struct{ own, want string }{{"", "main"}, {"other", "other"}} {
		o := mustOptions(testAPI)
		o.Recommended.CoreAPI.CoreAPIKubeconfigPath = "main"
		o.Recommended.Authentication.RemoteKubeConfigFile = tc.own
		o.Complete()
		if got := o.Recommended.Authentication.RemoteKubeConfigFile; got != tc.want {
			t.Errorf("kubeconfig for authentication: got %s, want %s", got, tc.want)
		}
		if got := o.Recommended.Authorization.RemoteKubeConfigFile; got != "main" {
			t.Errorf("kubeconfig for authorization: got %s, want main", got)
		}
	}
}

// TestDisableUnservedParts: only the parts whose API is not served are disabled.
func TestDisableUnservedParts(t *testing.T) {
	o := mustOptions(testAPI)
	o.switchOff(sets.New("ValidatingAdmissionPolicy"))
	if !o.Recommended.Features.EnablePriorityAndFairness {
		t.Error("priority and fairness: got off, want on")
	}
	o.switchOff(sets.New(flowControl))
	if o.Recommended.Features.EnablePriorityAndFairness {
		t.Error("priority and fairness: got on, want off")
	}
	if diff := cmp.Diff([]string{"ValidatingAdmissionPolicy"}, o.Recommended.Admission.DisablePlugins); diff != "" {
		t.Errorf("admission plugins that are off (-want +got):\n%s", diff)
	}
}

// files returns a directory with a kubeconfig and two valid serving certificates.
func files(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ca, err := certs.NewCA(certs.CAOptions{Name: "serving-ca", Usage: x509.ExtKeyUsageServerAuth})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		pair, err := ca.IssueServing(certs.ServingOptions{DNSNames: []string{name + ".demo.svc"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Write(filepath.Join(dir, name), certs.Bundle{ca.Certificate}); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "https://localhost:1"}}]}`
	if err := os.WriteFile(filepath.Join(dir, "kubeconfig"), []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestValidate: Validate reports all errors, in the same order each time.
func TestValidate(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // not a pod of a cluster
	dir := files(t)
	certificate := func(o *Options, cert, key string) {
		pair := &o.Recommended.SecureServing.ServerCert.CertKey
		pair.CertFile, pair.KeyFile = filepath.Join(dir, cert), filepath.Join(dir, key)
	}
	for _, tc := range []struct {
		name   string
		change func(*Options)
		want   []string // %[1]s is the directory
	}{
		{"valid", func(*Options) {}, nil},
		{"valid with etcd", func(o *Options) {
			o.Etcd.StorageConfig.Transport.ServerList, o.DataDir = []string{"https://127.0.0.1:2379"}, ""
		}, nil},
		{"nothing set", func(o *Options) { *o = *mustOptions(testAPI) }, []string{
			"--kubeconfig is required outside of a pod: unable to load in-cluster configuration, " +
				"KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined",
			"--tls-cert-file and --tls-private-key-file are required; issue a certificate with: " +
				"certgen init --service SERVICE --namespace NAMESPACE --dir DIR",
		}},
		{"everything wrong", func(o *Options) {
			o.Recommended.CoreAPI.CoreAPIKubeconfigPath = dir + "/none"
			o.Recommended.Authorization.RemoteKubeConfigFile = dir + "/a/tls.crt"
			o.Recommended.SecureServing.BindPort = 0
			certificate(o, "a/tls.crt", "none.key")
			o.DataDir = ""
			o.Etcd.DefaultStorageMediaType = "text/plain"
			o.ServerRun.MaxRequestsInFlight = -1
			o.Logs.Format = "poetry"
			o.Watches = WatchLimits{}
		}, []string{
			"read --kubeconfig %[1]s/none: stat %[1]s/none: no such file or directory",
			"read --authorization-kubeconfig %[1]s/a/tls.crt: ",
			"--max-watches-per-user is 0: must be at least 1",
			"--secure-port is 0: must be between 1 and 65535",
			"read --tls-cert-file %[1]s/a/tls.crt and --tls-private-key-file %[1]s/none.key: " +
				"open %[1]s/none.key: no such file or directory; check them with: certgen verify %[1]s/a/tls.crt",
			"--data-dir is required for the embedded etcd, or --etcd-servers for an external one",
			`--storage-media-type "text/plain" invalid, allowed values: application/json, application/vnd.kubernetes.protobuf, application/yaml`,
			"--max-requests-inflight can not be negative value",
			`logging flags: format: Invalid value: "poetry": Unsupported log format`,
		}},
		{"key of another certificate", func(o *Options) { certificate(o, "a/tls.crt", "b/tls.key") }, []string{
			"read --tls-cert-file %[1]s/a/tls.crt and --tls-private-key-file %[1]s/b/tls.key: " +
				"tls: private key does not match public key; check them with: certgen verify %[1]s/a/tls.crt",
		}},
		{"fewer watches in all than for a user", func(o *Options) { o.Watches = WatchLimits{PerUser: 5, Total: 4} },
			[]string{
				"--max-watches is 4: must be at least --max-watches-per-user, which is 5",
			}},
		{"port too high", func(o *Options) { o.Recommended.SecureServing.BindPort = 70000 }, []string{
			"--secure-port 70000 must be between 1 and 65535, inclusive. It cannot be turned off with 0",
		}},
		{"half of etcd's certificate", func(o *Options) {
			transport := &o.Etcd.StorageConfig.Transport
			transport.ServerList, transport.TrustedCAFile, transport.CertFile = []string{"https://127.0.0.1:2379"},
				dir+"/none", dir+"/a/tls.crt"
		}, []string{
			"read --etcd-cafile: open %[1]s/none: no such file or directory",
			"--etcd-certfile and --etcd-keyfile must be set together",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := mustOptions(testAPI)
			o.DataDir = dir
			o.Recommended.CoreAPI.CoreAPIKubeconfigPath = filepath.Join(dir, "kubeconfig")
			certificate(o, "a/tls.crt", "a/tls.key")
			tc.change(o)
			o.Complete()
			got := o.Validate()
			for i := range max(len(got), len(tc.want)) {
				var have, want string
				if i < len(got) {
					have = got[i].Error()
				}
				if i < len(tc.want) {
					want = tc.want[i]
				}
				if strings.Contains(want, "%") {
					want = fmt.Sprintf(want, dir)
				}
				if want == "" || !strings.HasPrefix(have, want) {
					t.Errorf("problem %d:\ngot  %s\nwant %s", i, have, want)
				}
			}
		})
	}
}

// TestOptionsOfInvalidAPI: NewOptions returns an error for an API that cannot be served.
func TestOptionsOfInvalidAPI(t *testing.T) {
	for name, change := range map[string]func(*Group){
		"group of Kubernetes":  func(g *Group) { g.Name = "bad.k8s.io" },
		"no registered kinds":  func(g *Group) { g.AddToScheme = nil },
		"no version is stored": func(g *Group) { g.StorageVersion = "" },
	} {
		if o, err := NewOptions(withGroup(change)); o != nil || err == nil ||
			!strings.HasPrefix(err.Error(), "the API cannot be served: ") {
			t.Errorf("%s: got %v and error %v, want an error about the API", name, o, err)
		}
	}
}

// TestFeatureGateDefaults: features of the library that cost more than they gain are disabled by
// default.
func TestFeatureGateDefaults(t *testing.T) {
	mustOptions(testAPI)
	for _, gate := range []featuregate.Feature{
		features.EtcdRangeStream, features.WatchListCompression, features.AllowUnsafeMalformedObjectDeletion,
	} {
		if utilfeature.DefaultFeatureGate.Enabled(gate) {
			t.Errorf("feature gate %s: got on, want off", gate)
		}
	}
}
