// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"

	kubecluster "example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/live"
)

// fromALaptop checks that `certgen verify --port-forward` reaches the endpoints from a machine
// that cannot reach pod addresses, also through the proxy of a kubeconfig.
func fromALaptop(c cluster) {
	proxied := rest.CopyConfig(c.config)
	proxy, connected := runProxy(c)
	proxied.Proxy = http.ProxyURL(proxy) // as the proxy of a kubeconfig
	through := map[string]int{}          // connections of the proxy, by tc.way
	for _, tc := range []struct {
		way     string
		config  *rest.Config
		forward bool
	}{
		{"directly", c.config, false}, {"port-forward", c.config, true},
		{"through a proxy", proxied, false}, {"port-forward through a proxy", proxied, true},
	} {
		before := connected()
		r, err := kubecluster.New(tc.config)
		if err != nil {
			c.Fatal(err)
		}
		r.Dial = func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no way to pods from here")
		}
		r.PortForward = tc.forward
		report, err := live.Check(c.Context(), r, live.Options{Service: service, Secret: name + "-serving"})
		if err != nil {
			c.Fatal(err)
		}
		reached := 0
		for _, checked := range report.Checked {
			if strings.HasPrefix(checked.Object, "endpoint ") && checked.NotAfter != nil {
				reached++
			}
		}
		if reached > 0 != tc.forward || report.Failed(true) == tc.forward {
			c.Errorf("%s: %d endpoints reached, findings %+v", tc.way, reached, report.Findings)
		}
		through[tc.way] = connected() - before
	}
	if through["directly"]+through["port-forward"] > 0 || through["through a proxy"] == 0 ||
		through["port-forward through a proxy"] <= through["through a proxy"] {
		c.Errorf("connections of the proxy to kube-apiserver, by the way: %v; want more where a port is forwarded "+
			"through it", through)
	}
}

// runProxy runs tinyproxy until the test ends. It returns the proxy's URL, and a function that
// counts its connections to kube-apiserver.
func runProxy(c cluster) (*url.URL, func() int) {
	c.Helper()
	address, dir := net.JoinHostPort("127.0.0.1", freePort(c)), c.TempDir()
	log, config := filepath.Join(dir, "log"), filepath.Join(dir, "tinyproxy.conf")
	_, port, _ := net.SplitHostPort(address)
	if err := os.WriteFile(config,
		[]byte("Port "+port+"\nListen 127.0.0.1\nTimeout 600\nLogLevel Info\nLogFile \""+log+"\"\n"),
		0o600); err != nil {
		c.Fatal(err)
	}
	cmd := exec.CommandContext(c.Context(), "tinyproxy", "-d", "-c", config)
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = cmd.Wait() }) // killed with the context
	c.eventually("tinyproxy to listen", func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	return &url.URL{Scheme: "http", Host: address}, func() int {
		lines, err := os.ReadFile(log)
		if err != nil {
			c.Error(err)
		}
		return strings.Count(string(lines), "CONNECT "+strings.TrimPrefix(c.config.Host, "https://"))
	}
}
