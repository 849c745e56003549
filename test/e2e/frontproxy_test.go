// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/certs"
	kubecluster "example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/frontproxy"
)

// TestFrontproxy checks that requests succeed while the CronJob renews the certificate of two
// servers, and while certgen replaces the CA of kubeadm's front proxy on the node. kube-apiserver
// reaches the servers by their endpoints.
func TestFrontproxy(t *testing.T) {
	c := newProduction(t)
	routeToEndpoints(c)
	underLoad(c, "frontproxy", nil, step{"renewal", renewal}, step{"front proxy's CA", replaceFrontProxyCA})
	removeAtOnce(c)
}

// replaceFrontProxyCA runs the command for a kubeadm control plane in docs/operate/rotation.md,
// with a shorter hold.
func replaceFrontProxyCA(c cluster) {
	c.Helper()
	certgen, err := os.Open(filepath.Join("..", "..", "bin", "certgen"))
	if err != nil {
		c.Fatal(err)
	}
	defer certgen.Close()
	c.onNode("cat >/usr/local/bin/certgen && chmod 755 /usr/local/bin/certgen", certgen)
	old, oldCAs := c.frontProxy()

	began := time.Now()
	c.Logf("%s", c.onNode(kubeadmCommand(c)+" --hold 30s", nil))
	c.Logf("the CA of the front proxy was replaced in %s", time.Since(began).Round(time.Second))

	now, nowCAs := c.frontProxy()
	if len(nowCAs) != 1 || oldCAs.Contains(nowCAs[0]) {
		c.Errorf("front-proxy-ca.crt holds %d CAs, of which the first was there before: %t; want a new one alone",
			len(nowCAs), oldCAs.Contains(nowCAs[0]))
	}
	checkFrontProxy(c, now, old, nowCAs, oldCAs)
	// kubeadm recognizes its own files again.
	c.Logf("%s", c.onNode(
		"kubeadm certs check-expiration && certgen verify /etc/kubernetes/pki/front-proxy-client.crt "+
			"/etc/kubernetes/pki/front-proxy-ca.crt", nil))
}

// kubeadmCommand returns the command of docs/operate/rotation.md for a kubeadm control plane.
func kubeadmCommand(c cluster) string {
	c.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operate", "rotation.md"))
	if err != nil {
		c.Fatal(err)
	}
	const begin = "certgen rotate front-proxy-ca --dir /etc/kubernetes/pki "
	_, arguments, found := strings.Cut(string(text), "\n```sh\n"+begin)
	arguments, _, ended := strings.Cut(arguments, "\n```\n")
	if !found || !ended {
		c.Fatalf("docs/operate/rotation.md has no block that begins with %q", begin)
	}
	return begin + arguments
}

// frontProxy returns the key pair of kube-apiserver's front proxy on the node, and the CAs that it
// publishes, from the files of kubeadm.
func (c cluster) frontProxy() (*certs.KeyPair, certs.Bundle) {
	c.Helper()
	file := func(name string) []byte { return []byte(c.onNode("cat /etc/kubernetes/pki/"+name, nil)) }
	pair, err := certs.ParseKeyPair(file("front-proxy-client.crt"), file("front-proxy-client.key"))
	if err != nil {
		c.Fatal(err)
	}
	cas, err := certs.ParseBundle(file("front-proxy-ca.crt"))
	if err != nil {
		c.Fatal(err)
	}
	return pair, cas
}

// checkFrontProxy checks that each server trusts the new certificate and rejects the old one, and
// that the ConfigMap has only the new CA.
func checkFrontProxy(c cluster, now, old *certs.KeyPair, nowCAs, oldCAs certs.Bundle) {
	c.Helper()
	r, err := kubecluster.New(c.config)
	if err != nil {
		c.Fatal(err)
	}
	r.PortForward = true
	endpoints, err := r.Endpoints(c.Context(), service)
	if err != nil || len(endpoints) != 2 {
		c.Fatalf("got %d endpoints, %v, want 2", len(endpoints), err)
	}
	trust, err := c.servingCAs(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	for _, e := range endpoints {
		for _, tc := range []struct {
			proxy *certs.KeyPair
			want  kubecluster.ProbeResult
		}{{now, kubecluster.Accepted}, {old, kubecluster.NotTrusted}} {
			if got, err := r.ProbeFrontProxy(c.Context(), e, service, trust, tc.proxy); err != nil || got != tc.want {
				c.Errorf("front proxy %s at %s: %s, %v; want %s", tc.proxy, e.Address, got, err, tc.want)
			}
		}
	}
	cm, err := r.TrustConfigMap(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	if published := frontproxy.Evaluate(cm).CAs; len(published) != 1 || !nowCAs.Contains(published[0]) ||
		oldCAs.Contains(published[0]) {
		c.Errorf("the ConfigMap has %d CAs of the front proxy, want the new one alone", len(published))
	}
}

// onNode runs commands on the control plane node, and returns their standard output. It can run in a
// cleanup.
func (c cluster) onNode(commands string, stdin io.Reader) string {
	c.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(c.Context()),
		filepath.Join("..", "..", "scripts", "kind.sh"), "node", commands)
	cmd.Stdin = stdin
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		c.Fatalf("on the node: %s: %v\n%s", commands, err, stderr.Bytes())
	}
	if stderr.Len() > 0 {
		c.Logf("%s", stderr.Bytes())
	}
	return string(out)
}
