// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/apply"
	"example.com/extension-apiserver/pkg/envtest"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/test/rollout/load"
)

var (
	shared  *envtest.Environment
	service = certs.Service{Name: envtest.ServiceName, Namespace: envtest.Namespace}
)

func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Println("skipped: network namespaces need root: run the tests as root")
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "apienv-") // its path is needed before the environment starts
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if foreignCA, err = newForeignCA(filepath.Join(dir, "foreign-ca.crt")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return envtest.Main(m, envtest.Options{
		Dir: dir, Network: envtest.EndpointRouting, KubeAPIServers: 2, Servers: 2,
		// As certgen init recommends: the CAs beside kube-apiserver's client certificate. The
		// rotation changes them together.
		KubeAPIServerArgs: []string{"--requestheader-client-ca-file=" +
			filepath.Join(dir, "pki", certs.FrontProxyClientDir, certs.BundleFile)},
	}, &shared)
}

// startLoad sends requests through both kube-apiservers and holds two watches open at each.
func startLoad(t *testing.T, e *envtest.Environment, prefix string) *load.Load {
	t.Helper()
	configs, err := e.AdminConfigs()
	if err != nil {
		t.Fatal(err)
	}
	return load.Start(t, load.Options{Through: configs, Kind: v1.SchemeGroupVersion.WithKind("Gadget"),
		Prefix: prefix, Watches: 2})
}

// newCluster returns the client of certgen, with connections from the host of the first
// kube-apiserver.
func newCluster(t *testing.T, e *envtest.Environment) apply.Client {
	t.Helper()
	config, err := e.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(config)
	if err != nil {
		t.Fatal(err)
	}
	c.Dial = config.Dial
	return apply.Client{Cluster: c}
}

// takeOver makes certgen the only manager of every caBundle, like certgen apply --force-conflicts.
func takeOver(t *testing.T, c apply.Client) {
	t.Helper()
	applyDir(t, c, apply.Options{ForceConflicts: true})
}

func applyDir(t *testing.T, c apply.Client, opts apply.Options) {
	t.Helper()
	opts.Service, opts.Dir = service, shared.PKI()
	if _, err := c.PlanAndApply(t.Context(), opts, func(*apply.Plan) {}); err != nil {
		t.Fatal(err)
	}
}

func certificate(t *testing.T, dir string) *x509.Certificate {
	t.Helper()
	return bundle(t, filepath.Join(dir, certs.CertFile))[0]
}

func bundle(t *testing.T, path string) certs.Bundle {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out, err := certs.ParseBundle(data)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func pair(t *testing.T, dir string) *certs.KeyPair {
	t.Helper()
	p, err := certs.ReadKeyPair(dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
