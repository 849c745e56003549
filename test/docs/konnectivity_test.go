// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/kubeconfig"
	"example.com/extension-apiserver/internal/scripttest"
)

// TestKonnectivityDoc creates certificates as docs/konnectivity/install.md does, and runs the
// commands of docs/konnectivity/rotate.md that replace the CAs: each side gets a bundle of the old
// CA and the new CA, which certgen verify accepts.
func TestKonnectivityDoc(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(root, "bin")+":"+os.Getenv("PATH"))
	install := blocks(t, "docs/konnectivity/install.md")
	bundles := blocks(t, "docs/konnectivity/rotate.md")
	first := install[0]
	if !strings.HasPrefix(first, "certgen init ") || len(bundles) != 1 {
		t.Fatalf("got the commands\n%s\nand %d blocks in docs/konnectivity/rotate.md, want certgen init first, and "+
			"one block", first, len(bundles))
	}
	dir := t.TempDir()
	scripttest.Shell(t, dir, first)
	scripttest.Shell(t, dir, bundles[0])
	for _, pair := range []string{
		certs.KonnectivityServerDir, certs.KonnectivityAPIServerClientDir, certs.KonnectivityAgentServerDir,
		certs.KonnectivityAgentDir,
	} {
		var want []byte
		for _, pki := range []string{"pki", "pki-new"} {
			ca, err := os.ReadFile(filepath.Join(dir, pki, pair, certs.BundleFile))
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, ca...)
		}
		both := filepath.Join(dir, "pki-both", pair, certs.BundleFile)
		if got, err := os.ReadFile(both); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v, got\n%s\nwant both CAs\n%s", both, err, got, want)
		}
		// As on a host, with the leaf of either CA.
		for _, pki := range []string{"pki", "pki-new"} {
			scripttest.Shell(t, dir, "cp pki-both/"+pair+"/ca.crt "+pki+"/"+pair+"/ca.crt")
		}
	}
	scripttest.Shell(t, dir, "certgen verify pki && certgen verify pki-new")
}

// TestKonnectivityExpiry runs the daily check of docs/konnectivity/operate.md on the files of a
// node: it reports each certificate before it expires, including that of the server's kubeconfig.
func TestKonnectivityExpiry(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(root, "bin")+":"+os.Getenv("PATH"))
	var script string
	for _, block := range blocks(t, "docs/konnectivity/operate.md") {
		if strings.Contains(block, "konnectivity_certificates_due") {
			script = block
		}
	}
	const year, soon = 365 * 24 * time.Hour, 10 * time.Minute
	for name, tc := range map[string]struct {
		leaves, kubeconfig time.Duration
		want               string
	}{
		"a year":                 {year, year, "konnectivity_certificates_due 0\n"},
		"kubeconfig for minutes": {year, soon, "konnectivity_certificates_due 1\n"},
		"the others for minutes": {soon, year, "konnectivity_certificates_due 1\n"},
	} {
		dir := t.TempDir()
		node := filepath.Join(dir, "konnectivity")
		if _, err := certs.Init(t.Context(), certs.InitOptions{
			Dir: node, Service: certs.Service{Name: "widgets", Namespace: "demo"},
			With:                         []string{certs.SetKonnectivity},
			KonnectivityAgentServerNames: []string{"konnectivity.example.com"}, Lifetime: tc.leaves,
		}); err != nil {
			t.Fatal(err)
		}
		ca := filepath.Join(node, certs.KonnectivityAgentCADir)
		if _, err := kubeconfig.Write(t.Context(), kubeconfig.Options{
			Client: certs.ClientOptions{User: "system:konnectivity-server", Lifetime: tc.kubeconfig}, CA: ca,
			Server:       "https://10.0.0.1:6443",
			ServerCAFile: filepath.Join(ca, certs.CertFile), Out: filepath.Join(node, "konnectivity-server.kubeconfig"),
		}); err != nil {
			t.Fatal(err)
		}
		// Exits 1 or not: cron's mail is not what this is about.
		scripttest.Shell(t, dir, strings.NewReplacer("/etc/kubernetes/konnectivity", node, "/var/lib/node_exporter",
			dir, "/usr/local/bin/certgen", "set +e; certgen").Replace(script))
		if got, err := os.ReadFile(filepath.Join(dir, "konnectivity.prom")); err != nil || string(got) != tc.want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, tc.want)
		}
	}
}

// TestKonnectivityJoin packs the files of a control plane node and unpacks them on another, as
// docs/konnectivity/operate.md does before kubeadm join. Owners and modes are kept. The socket is
// not packed, because it belongs to a server. The server's image exists before kubelet starts it,
// and kubeadm starts kube-apiserver when the server has an agent.
func TestKonnectivityJoin(t *testing.T) {
	dir := t.TempDir()
	const socket = "etc/kubernetes/konnectivity-server/konnectivity-server.socket"
	key := "etc/kubernetes/konnectivity/kubeconfig/konnectivity-server.kubeconfig.d/tls.key"
	want := map[string]fs.FileMode{
		key: 0o400, "etc/kubernetes/konnectivity/patches/kube-apiserver1+json.yaml": 0o644,
		"etc/kubernetes/manifests/konnectivity-server.yaml": 0o600,
		"etc/cron.daily/konnectivity-certificates":          0o755, "usr/local/bin/certgen": 0o755,
	}
	for name, mode := range want {
		path := filepath.Join(dir, "first", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750),
			os.WriteFile(path, []byte("    image: the-server:v1\n"), mode)); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{filepath.Dir(filepath.Join(dir, "first", socket)), filepath.Join(dir, "second")} {
		if err := os.MkdirAll(d, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "first", socket), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"crictl", "kubeadm"} {
		stub(t, dir, program, "echo "+program+" \"$@\" >>log\n")
	}
	// The server is ready at the second request.
	stub(t, dir, "curl", "echo curl \"$@\" >>log\n[ \"$(grep -c curl log)\" = 2 ]\n")
	for _, block := range blocks(t, "docs/konnectivity/operate.md") {
		switch {
		case strings.Contains(block, "-cf konnectivity.tar"):
			scripttest.Shell(t, dir, strings.ReplaceAll(block, "-C / ", "-C first "))
		case strings.Contains(block, "-xpf konnectivity.tar"):
			scripttest.Shell(t, dir, strings.NewReplacer("-C / ", "-C second ", "/etc/kubernetes",
				"second/etc/kubernetes").Replace(block))
		case strings.Contains(block, "kubeadm join"):
			scripttest.Shell(t, dir, block)
		}
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	wantLog := `crictl pull the-server:v1
kubeadm join --config kubeadm.yaml --skip-phases control-plane-prepare/control-plane,etcd-join,kubelet-wait-bootstrap,control-plane-join,wait-control-plane
curl -fsS http://127.0.0.1:8134/readyz
curl -fsS http://127.0.0.1:8134/readyz
kubeadm join phase control-plane-prepare control-plane --config kubeadm.yaml
kubeadm join --config kubeadm.yaml --skip-phases preflight,control-plane-prepare,kubelet-start
`
	if diff := cmp.Diff(wantLog, string(log)); diff != "" {
		t.Errorf("commands on the new node (-want +got):\n%s", diff)
	}
	for name, mode := range want {
		info, err := os.Stat(filepath.Join(dir, "second", name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want mode %o", name, info, err, mode)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "second", socket)); err == nil {
		t.Error("the socket was copied")
	}
	if info, err := os.Stat(filepath.Join(dir, "second", filepath.Dir(socket))); err != nil || !info.IsDir() {
		t.Errorf("the directory of the socket: %v", err)
	}
}

// switchBlocks returns the commands of the pages that change kube-apiserver's manifest, among
// others.
func switchBlocks(t *testing.T) []string {
	t.Helper()
	return slices.Concat(blocks(t, "docs/konnectivity/install.md"), blocks(t, "docs/konnectivity/operate.md"))
}

// TestKonnectivitySwitch runs the commands of switchBlocks in which kubeadm writes kube-apiserver's
// manifest again: address and port remain those of this kube-apiserver, which differ from kubeadm's
// defaults.
func TestKonnectivitySwitch(t *testing.T) {
	type configuration struct {
		Kind             string
		LocalAPIEndpoint struct {
			AdvertiseAddress string
			BindPort         int
		}
		Patches struct{ Directory string }
	}
	var over, back string
	for _, block := range switchBlocks(t) {
		switch {
		case !strings.Contains(block, "kubeadm init phase"):
		case strings.Contains(block, "/patches"):
			over = block
		default:
			back = block
		}
	}
	for name, tc := range map[string]struct {
		commands, annotation, address string
		port                          int
		patched                       bool
	}{
		"over":      {over, "10.1.0.5:6443", "10.1.0.5", 6443, true},
		"over IPv6": {over, "'[fd00::5]:7443'", "fd00::5", 7443, true},
		"back":      {back, "10.1.0.5:7443", "10.1.0.5", 7443, false},
		"back IPv6": {back, "'[fd00::5]:6443'", "fd00::5", 6443, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			// Instead of the cluster's and the node's.
			stub(t, dir, "kubectl", "echo 'kind: ClusterConfiguration'\n")
			stub(t, dir, "kubeadm", "[ \"$*\" = 'init phase control-plane apiserver --config kubeadm.yaml' ]\n")
			if err := os.CopyFS(filepath.Join(dir, "konnectivity"),
				os.DirFS(filepath.Join("..", "..", "konnectivity"))); err != nil {
				t.Fatal(err)
			}
			node := filepath.Join(dir, "node")
			scripttest.Write(t, filepath.Join(node, "manifests", "kube-apiserver.yaml"), "metadata:\n  annotations:\n"+
				"    kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: "+tc.annotation+"\n  name: kube-apiserver\n")
			scripttest.Shell(t, dir, strings.ReplaceAll(tc.commands, "/etc/kubernetes", node))
			text, err := os.ReadFile(filepath.Join(dir, "kubeadm.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			_, second, _ := strings.Cut(string(text), "\n---\n")
			want := configuration{Kind: "InitConfiguration"}
			want.LocalAPIEndpoint.AdvertiseAddress, want.LocalAPIEndpoint.BindPort = tc.address, tc.port
			if tc.patched {
				want.Patches.Directory = filepath.Join(node, "konnectivity", "patches")
			}
			var got configuration
			if err := yaml.Unmarshal([]byte(second), &got); err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kubeadm's configuration (-want +got):\n%s", diff)
			}
		})
	}
}

// TestKonnectivitySwitchStops checks that the commands stop without the cluster's configuration,
// because kubeadm would write a kube-apiserver with its defaults.
func TestKonnectivitySwitchStops(t *testing.T) {
	tried := 0
	for _, block := range switchBlocks(t) {
		if !strings.Contains(block, "kubeadm init phase") {
			continue
		}
		tried++
		dir := t.TempDir()
		stub(t, dir, "kubectl", "exit 1\n")
		stub(t, dir, "kubeadm", "touch called\n")
		stub(t, dir, "install", "")
		cmd := exec.CommandContext(t.Context(), "bash", "-c", block)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("without a cluster: success\n%s", out)
		}
		if _, err := os.Stat(filepath.Join(dir, "called")); err == nil {
			t.Errorf("without a cluster: kubeadm was called\n%s", block)
		}
	}
	if tried != 2 {
		t.Errorf("%d blocks were tried, want those that switch over and back", tried)
	}
}

// stub writes a program into a directory that comes first in the path, instead of a real program.
func stub(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o700); err != nil { //nolint:gosec // G306: it is run
		t.Fatal(err)
	}
	if path := os.Getenv("PATH"); !strings.HasPrefix(path, dir+":") {
		t.Setenv("PATH", dir+":"+path)
	}
}
