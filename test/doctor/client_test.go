// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/extension-apiserver/internal/doctor"
)

// clientFaults are faults of the machine of the user.
var clientFaults = []struct {
	name string
	id   string
	// change changes a working configuration, with the URL of a port on which nothing listens.
	change func(c *rest.Config, nowhere string)
}{
	{"HTTP proxy", "Q01", func(c *rest.Config, nowhere string) { c.Proxy = proxy("http://" + nowhere) }},
	{"SOCKS proxy", "Q01", func(c *rest.Config, nowhere string) { c.Proxy = proxy("socks5://" + nowhere) }},
	{"another CA", "Q02", func(c *rest.Config, _ string) { c.CAFile = "" }},
	{"token", "Q03", func(c *rest.Config, _ string) { c.CertFile, c.KeyFile, c.BearerToken = "", "", "wrong" }},
	{"credential plugin that is not installed", "Q03", func(c *rest.Config, _ string) {
		c.CertFile, c.KeyFile = "", ""
		c.ExecProvider = &clientcmdapi.ExecConfig{Command: "kubectl-login-of-a-cloud", InteractiveMode: "Never",
			APIVersion: "client.authentication.k8s.io/v1"}
	}},
	{"no kube-apiserver at the address", "Q04", func(c *rest.Config, nowhere string) { c.Host = "https://" + nowhere }},
	{"clock", "Q05", func(c *rest.Config, _ string) {
		c.Wrap(func(transport http.RoundTripper) http.RoundTripper { return slowClock{transport} })
	}},
}

func proxy(address string) func(*http.Request) (*url.URL, error) {
	return func(*http.Request) (*url.URL, error) { return url.Parse(address) }
}

// slowClock makes the clock of kube-apiserver an hour slow.
type slowClock struct{ http.RoundTripper }

func (s slowClock) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := s.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	date, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return nil, err
	}
	response.Header.Set("Date", date.Add(-time.Hour).Format(http.TimeFormat))
	return response, nil
}

func TestClient(t *testing.T) {
	nowhere := "127.0.0.1:" + shared.FreePort(t)
	for _, tc := range clientFaults {
		t.Run(tc.name, func(t *testing.T) {
			config := rest.CopyConfig(shared.Admin(t))
			tc.change(config, nowhere)
			facts, err := doctor.Collect(t.Context(), config, doctor.Options{})
			if facts == nil || err == nil != (tc.id == "Q05") {
				t.Fatalf("got %v and %v", facts, err)
			}
			report := doctor.NewReport(facts)
			if !slices.Equal(ids(report), []string{tc.id}) {
				t.Errorf("got %v and %v, want %s\n%s", err, ids(report), tc.id, text(report))
			}
			t.Log("\n" + text(report))
		})
	}
}
