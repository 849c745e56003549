// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/scripttest"
)

var update = flag.Bool("update", false, "Write the generated parts of pages in docs/reference.")

// metricsPage has the metrics of the kit.
var metricsPage = filepath.Join("..", "..", "docs", "reference", "metrics.md")

// families are metrics by their names, histograms without _bucket, _count and _sum.
type families map[string]*dto.MetricFamily

func parseMetrics(text string) (families, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(strings.NewReader(text))
}

// testMetrics scrapes the server like Prometheus, with the permissions and the account of the
// component monitoring, and also kube-apiserver. It checks that each metric of an alert or the
// dashboard exists, with the labels that they use.
func testMetrics(c *cluster) {
	text := render(c, variant{components: []string{"monitoring"}})
	c.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: monitoring}\n---\n" +
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: prometheus-k8s, namespace: monitoring}\n---\n" +
		c.pick(text, "ClusterRole", "ClusterRoleBinding"))
	c.haveRejected()
	objects := parse(c, text)
	_, d := dashboards(c, objects)
	metricQueries := d.metricQueries(c)
	for _, rule := range alerts(c, objects) {
		metricQueries = append(metricQueries, metricQuery{by: rule.Alert, query: parsePromQL(c, rule.Expr)[0]})
	}
	scraped := map[string]families{}
	c.eventually("the metrics", func(ctx context.Context) error {
		kube, err := c.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return err
		}
		for owner, text := range map[string]string{"kube-apiserver": string(kube), "the server": c.scrape()} {
			if scraped[owner], err = parseMetrics(text); err != nil {
				return fmt.Errorf("metrics of %s: %w", owner, err)
			}
		}
		var missing []error
		for _, q := range metricQueries {
			missing = append(missing, q.missing(watched(c), scraped)...)
		}
		return errors.Join(missing...)
	})
	scripttest.Generated(c.T, metricsPage, "go test ./test/manifests -run TestCluster -update",
		kitMetrics(scraped["the server"]), *update)
}

// kitMetrics returns the table of the metrics that the kit defines, with the help texts, types and
// labels that the server reports.
func kitMetrics(all families) string {
	var text strings.Builder
	text.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !strings.HasPrefix(name, "extension_apiserver_") {
			continue
		}
		family := all[name]
		var labels []string
		for _, label := range family.Metric[0].Label {
			labels = append(labels, "`"+label.GetName()+"`")
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", name, strings.ToLower(family.GetType().String()),
			strings.Join(labels, ", "), strings.TrimPrefix(family.GetHelp(), "[ALPHA] "))
	}
	return text.String()
}

// byPrometheus are the labels that Prometheus adds to scraped metrics, or that belong to a part of
// a histogram.
var byPrometheus = []string{"__name__", "job", "namespace", "instance", "le"}

// missing returns errors for metrics and labels of a query that do not exist. It skips metrics
// whose owner was not scraped.
func (q metricQuery) missing(watched map[string]string, scraped map[string]families) []error {
	var problems []error
	for _, s := range q.Selectors {
		of := ""
		for metric, owner := range watched {
			if s.matches(metric) {
				of = owner
			}
		}
		all, ok := scraped[of]
		if !ok && of != "" {
			continue
		}
		labels := sets.New(byPrometheus...)
		found := false
		for name := range maps.Keys(all) {
			if s.matches(name) {
				found = true
				for _, m := range all[name].Metric {
					for _, l := range m.Label {
						labels.Insert(l.GetName())
					}
				}
			}
		}
		want := slices.Clone(q.By)
		for _, m := range s {
			want = append(want, m.Label)
		}
		if lacks := sets.New(want...).Difference(labels); !found {
			problems = append(problems, fmt.Errorf("%s: %q has no metric %s", q.by, of, s))
		} else if len(lacks) > 0 {
			problems = append(problems, fmt.Errorf("%s: %s has no labels %v", q.by, s, sets.List(lacks)))
		}
	}
	return problems
}

// haveRejected creates a priority level without seats, where a request gets a seat only while no
// other has it. It waits until the server has responded with 429: until then there is no metric of
// rejected requests.
func (c *cluster) haveRejected() {
	c.apply(`apiVersion: v1
kind: ServiceAccount
metadata: {name: unseated, namespace: monitoring}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: unseated}
spec: {type: Limited, limited: {nominalConcurrencyShares: 0, borrowingLimitPercent: 0, limitResponse: {type: Reject}}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: unseated}
spec:
  priorityLevelConfiguration: {name: unseated}
  matchingPrecedence: 2
  rules:
  - subjects: [{kind: ServiceAccount, serviceAccount: {name: unseated, namespace: monitoring}}]
    nonResourceRules: [{verbs: ["*"], nonResourceURLs: ["*"]}]
`)
	token, err := c.env.Token(c.Context(), "monitoring", "unseated")
	if err != nil {
		c.Fatal(err)
	}
	config := c.env.Servers[0].Config(c.env)
	config.BearerToken = token
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		c.Fatal(err)
	}
	c.eventually("requests without a seat", func(ctx context.Context) error {
		var all errgroup.Group
		rejected := errors.New("rejected")
		for range 20 {
			all.Go(func() error {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.env.Servers[0].URL+"/apis", nil)
				if err != nil {
					return err
				}
				resp, err := client.Do(req)
				if err != nil {
					return err
				}
				_, err = io.Copy(io.Discard, resp.Body)
				if err = errors.Join(err, resp.Body.Close()); err == nil &&
					resp.StatusCode == http.StatusTooManyRequests {
					err = rejected
				}
				return err
			})
		}
		if err := all.Wait(); !errors.Is(err, rejected) {
			return errors.Join(errors.New("none of 20 requests was rejected"), err)
		}
		return nil
	})
}

func (c *cluster) scrape() string {
	c.Helper()
	return c.getAs("monitoring", "prometheus-k8s", "/metrics")
}

// getAs sends a request to the server itself, with the token of a ServiceAccount.
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
	req.Close = true // a connection for each of the repeated requests would be too many
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
