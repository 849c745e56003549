// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"io"
	"net/http"
	"regexp"
	"strings"
)

// ownMetric finds what an alert asks of our server; other metrics are those of kube-apiserver and kube-state-metrics.
var ownMetric = regexp.MustCompile(`(\w+)\{job='[^']+'`)

// testAlertMetrics scrapes the server as Prometheus does, with the rights and the account of the component monitoring: each
// metric on which an alert rests is there.
func testAlertMetrics(c *cluster) {
	text := render(c, variant{components: []string{"monitoring"}})
	c.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: monitoring}\n---\n" +
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: prometheus-k8s, namespace: monitoring}\n---\n" +
		c.pick(text, "ClusterRole", "ClusterRoleBinding"))
	metrics := c.scrape()
	checked := 0
	for _, rule := range alerts(c, parse(c, text)) {
		for _, match := range ownMetric.FindAllStringSubmatch(rule.Expr, -1) {
			// Prometheus itself makes up.
			if checked++; match[1] != "up" && !strings.Contains(metrics, "\n"+match[1]+"{") {
				c.Errorf("%s: the server has no metric %s", rule.Alert, match[1])
			}
		}
	}
	if checked < 3 {
		c.Errorf("found %d metrics of our server in the alerts, want more", checked)
	}
}

func (c *cluster) scrape() string {
	c.Helper()
	return c.getAs("monitoring", "prometheus-k8s", "/metrics")
}

// getAs asks our server itself, with the token of a ServiceAccount.
func (c *cluster) getAs(namespace, name, path string) string {
	c.Helper()
	token, err := c.env.Token(c.Context(), namespace, name)
	if err != nil {
		c.Fatal(err)
	}
	server := c.env.Servers[0]
	client, err := server.Client(c.env)
	if err != nil {
		c.Fatal(err)
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(c.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		c.Fatalf("GET %s of %s as %s: %s, %v\n%s", path, server.Name, name, resp.Status, err, body)
	}
	return string(body)
}
