// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/controlplane"
	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/envtest"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/test/rollout/load"
)

// TestUpgrade upgrades the control plane to the next minor version and replaces the servers by
// others with newer libraries, in both orders, under load. Each kube-apiserver is replaced while
// requests and watches go through the other. The newer libraries are the kit's. The first servers
// have the libraries of the first patch of their minor version, the oldest with which the kit
// compiles.
func TestUpgrade(t *testing.T) {
	from, to := envtest.Minor(), envtest.DefaultMinor
	if from == to {
		t.Skip("make test-minors runs it: ENVTEST_K8S_VERSION does not name another minor version")
	}
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root: run the tests as root")
	}
	if from > to {
		from, to = to, from
	} else {
		to = nextMinor(t, from)
	}
	t.Setenv("ENVTEST_K8S_VERSION", to)
	dir, err := controlplane.Fill(t.Context(), os.Stderr, "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("ENVTEST_K8S_VERSION", from)
	root := filepath.Join("..", "..")
	before, after := buildServer(t, root, envtest.DefaultMinor+".0"), buildServer(t, root, "")
	for _, order := range []string{"control plane first", "server first"} {
		t.Run(order, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "server")
			install(t, before, program)
			e := envtest.New(t, envtest.Options{Network: envtest.EndpointRouting, KubeAPIServers: 2, Servers: 2,
				Server:     program,
				ServerArgs: []string{"--shutdown-delay-duration=" + delay.String()}})
			upgrade := func() { upgradeControlPlane(t, e, filepath.Join(dir, "kube-apiserver")) }
			servers := func() {
				install(t, after, program)
				routes := followReadiness(t, e)
				l := startLoad(t, e, "servers", 0, 0, 1)
				replaceServers(t, e, e.Servers, l, routes, order+", ")
				l.End()
			}
			wantVersions(t, e, from, before)
			if order == "control plane first" {
				upgrade()
				servers()
			} else {
				servers()
				upgrade()
			}
			wantVersions(t, e, to, after)
		})
	}
}

// nextMinor returns the minor version after the given one. Two kube-apiservers of a cluster may
// differ by one minor version.
func nextMinor(t *testing.T, minor string) string {
	t.Helper()
	var n int
	if _, err := fmt.Sscanf(minor, "1.%d", &n); err != nil {
		t.Fatalf("parse minor version %q: %v", minor, err)
	}
	return fmt.Sprintf("1.%d", n+1)
}

// build is a server binary and the Kubernetes version of its libraries.
type build struct{ program, libraries string }

// buildServer builds the sample's server with the libraries of a Kubernetes version, or with
// those of the kit if libraries is empty.
func buildServer(t *testing.T, root, libraries string) build {
	t.Helper()
	tree := scripttest.CopyTree(t, root)
	if libraries != "" {
		scripttest.Shell(t, tree, "scripts/libraries.sh "+libraries)
	}
	dir := t.TempDir()
	scripttest.Shell(t, tree, "scripts/build.sh ./cmd/extension-apiserver", "OUT="+dir)
	version := scripttest.Shell(t, tree, "go list -m -f '{{.Version}}' k8s.io/apiserver")
	return build{filepath.Join(dir, "extension-apiserver"), "v1" + strings.TrimPrefix(strings.TrimSpace(version), "v0")}
}

// install makes path point to the program of a build. Running servers keep their program.
func install(t *testing.T, b build, path string) {
	t.Helper()
	if err := os.Symlink(b.program, path+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
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

// startLoad starts a load through some of the kube-apiservers, with the given number of watches
// at each.
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
	return load.Start(t, load.Options{Through: configs, Kind: v1.SchemeGroupVersion.WithKind("Gadget"), Prefix: prefix,
		Watches: watches})
}

// wantVersions checks the version of each kube-apiserver and of each extension API server.
func wantVersions(t *testing.T, e *envtest.Environment, minor string, servers build) {
	t.Helper()
	configs, err := e.AdminConfigs()
	if err != nil {
		t.Fatal(err)
	}
	for _, config := range configs {
		wantVersion(t, config, "v"+minor+".")
	}
	for _, s := range e.Servers {
		wantVersion(t, s.ConfigAs(e, configs[0]), servers.libraries)
	}
}

func wantVersion(t *testing.T, config *rest.Config, want string) {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if version, err := client.ServerVersion(); err != nil || !strings.HasPrefix(version.GitVersion, want) {
		t.Errorf("%s: got version %v (%v), want %s", config.Host, version, err, want)
	}
}
