// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
	v1 "example.com/extension-apiserver/test/fixture/api/v1"
	"example.com/extension-apiserver/test/load"
)

// TestUpgrade upgrades the control plane to the next minor and replaces our servers, in both orders, under load: one kube-apiserver is
// replaced while requests and watches go through the other.
func TestUpgrade(t *testing.T) {
	from, to := envtest.Minor(), envtest.DefaultMinor
	if from == to {
		t.Skip("make test-minors runs it: ENVTEST_K8S_VERSION names no other minor")
	}
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root: run the tests as root")
	}
	if from > to {
		from, to = to, from
	}
	t.Setenv("ENVTEST_K8S_VERSION", to)
	dir, err := envtest.Setup(t.Context(), os.Stderr, "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("ENVTEST_K8S_VERSION", from)
	for _, order := range []string{"control plane first", "server first"} {
		t.Run(order, func(t *testing.T) {
			e := envtest.New(t, envtest.Options{Network: envtest.EndpointRouting, KubeAPIServers: 2, Servers: 2,
				ServerArgs: []string{"--shutdown-delay-duration=" + delay.String()}})
			wantVersion(t, e, from)
			upgrade := func() { upgradeControlPlane(t, e, filepath.Join(dir, "kube-apiserver")) }
			servers := func() {
				routes := followReadiness(t, e)
				l := startLoad(t, e, "servers", 0, 0, 1)
				replaceServers(t, e, l, routes, order+", ")
				l.End()
			}
			if order == "control plane first" {
				upgrade()
				servers()
			} else {
				servers()
				upgrade()
			}
			wantVersion(t, e, to)
		})
	}
}

func upgradeControlPlane(t *testing.T, e *envtest.Environment, program string) {
	t.Helper()
	for i, k := range e.KubeAPIServers {
		other := 1 - i
		l := startLoad(t, e, "around-"+string(rune('a'+i)), 2, other)
		l.Await(perRollout)
		l.Enter("upgrade")
		if err := e.UpgradeKubeAPIServer(t.Context(), k, program); err != nil {
			l.End()
			t.Fatal(err)
		}
		l.Await(perRollout)
		l.End()
	}
}

// startLoad sends through some of the kube-apiservers, with so many watches at each.
func startLoad(t *testing.T, e *envtest.Environment, prefix string, watches int, through ...int) *load.Load {
	t.Helper()
	all, err := e.AdminConfigs()
	if err != nil {
		t.Fatal(err)
	}
	var configs []*rest.Config
	for _, i := range through {
		configs = append(configs, all[i])
	}
	return load.Start(t, load.Options{Through: configs, Kind: v1.SchemeGroupVersion.WithKind("Item"), Prefix: prefix, Watches: watches})
}

func wantVersion(t *testing.T, e *envtest.Environment, minor string) {
	t.Helper()
	configs, err := e.AdminConfigs()
	if err != nil {
		t.Fatal(err)
	}
	for _, config := range configs {
		client, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if version, err := client.ServerVersion(); err != nil || !strings.HasPrefix(version.GitVersion, "v"+minor+".") {
			t.Errorf("kube-apiserver at %s: %v (%v), want %s", config.Host, version, err, minor)
		}
	}
}
