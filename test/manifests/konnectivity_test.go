// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// konnectivity renders resources and components of the folder konnectivity; a name that ends with
// .yaml is a file of its tests.
func konnectivity(t testing.TB, resources, components []string) string {
	t.Helper()
	dir := t.TempDir()
	list := func(names []string) string {
		var out []string
		for _, name := range names {
			if strings.HasSuffix(name, ".yaml") {
				text := readFile(t, filepath.Join("..", "..", "internal", "konnectivity", "testdata", name))
				writeFile(t, filepath.Join(dir, name), text)
				out = append(out, name)
				continue
			}
			out = append(out, relative(t, dir, filepath.Join("..", "..", "konnectivity", name)))
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	writeFile(t, filepath.Join(dir, "kustomization.yaml"),
		fmt.Sprintf("resources: %s\ncomponents: %s\n", list(resources), list(components)))
	return kustomize(t, dir)
}

// konnectivitySets are resources and components that are applied together, with the level of Pod
// Security that their pods meet.
var konnectivitySets = []struct {
	level                 string
	resources, components []string
}{
	{"restricted", []string{"server/rbac"}, nil},
	{"restricted", []string{"agents/base"}, []string{"agents/components/network-policy",
		"agents/components/monitoring"}},
	{"restricted", []string{"agents/base"}, []string{"agents/components/daemonset"}},
	{"restricted", []string{"agents/base"}, []string{"agents/components/mtls", "certificates",
		"certificates/monitoring"}},
	{"privileged", []string{"server/static-pod", "kube-apiserver-pod.yaml"}, []string{"server/kube-apiserver"}},
	{"privileged", []string{"server/static-pod"}, []string{"server/static-pod/components/mtls",
		"server/static-pod/components/http-connect-tcp"}},
	{"privileged", []string{"server/static-pod"}, []string{"server/static-pod/components/http-connect-uds"}},
	{"baseline", []string{"kube-apiserver-deployment.yaml"}, []string{"server/sidecar", "images"}},
	{"baseline", []string{"kube-apiserver-deployment.yaml"},
		[]string{"server/sidecar", "server/sidecar/components/mtls",
			"server/sidecar/components/http-connect-uds", "images"}},
}

// testKonnectivity checks that kube-apiserver admits every object of konnectivity, and every pod
// that controllers would create from them, at its level of Pod Security. Static pods need the
// network and directories of the node.
func testKonnectivity(c *cluster) {
	c.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: clusters-demo}\n")
	// A dry run finds only existing objects.
	c.apply(c.pick(konnectivity(c, []string{"server/rbac", "agents/base"}, nil), "Namespace", "ServiceAccount"))
	defer c.podSecurity("") // restores the state that the next test expects
	for _, set := range konnectivitySets {
		text := konnectivity(c, set.resources, set.components)
		c.podSecurity(set.level)
		c.apply(text, "--dry-run=server", "--validate=strict")
		for _, w := range slices.Concat(workloads(c, parse(c, text)), staticPods(c, text)) {
			if w.GetKind() != "Pod" && w.pod.Spec.NodeSelector[corev1.LabelOSStable] != string(corev1.Linux) {
				c.Errorf("%q: %s %s has the node selector %v, want Linux", set.components, w.GetKind(), w.GetName(),
					w.pod.Spec.NodeSelector)
			}
			if err := c.tryPodAt(set.level, w.pod.Spec); err != nil {
				c.Errorf("%q: pod of %s %s: %v", set.components, w.GetKind(), w.GetName(), err)
			}
			// The level is the strictest.
			if stricter := map[string]string{"privileged": "baseline",
				"baseline": "restricted"}[set.level]; stricter != "" {
				if err := c.tryPodAt(stricter, w.pod.Spec); err == nil {
					c.Errorf("%q: pod of %s %s is admitted at the level %s", set.components, w.GetKind(),
						w.GetName(), stricter)
				}
			}
			if set.level == "baseline" {
				// The containers that need this level are kube-apiserver's.
				alone := w.pod.Spec.DeepCopy()
				alone.Containers, alone.InitContainers = alone.InitContainers, nil
				alone.Containers[0].RestartPolicy = nil
				if err := c.tryPodAt("restricted", *alone); err != nil {
					c.Errorf("%q: the sidecar alone: %v", set.components, err)
				}
			}
		}
	}
}

// staticPods returns the Pods in manifests as workloads.
func staticPods(t testing.TB, rendered string) []workload {
	t.Helper()
	var out []workload
	for _, obj := range parse(t, rendered) {
		if obj.GetKind() == "Pod" {
			pod := as[corev1.Pod](t, obj)
			out = append(out, workload{obj, corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}})
		}
	}
	return out
}

// podSecurity labels kube-system with an enforced level; an empty level removes the label.
func (c *cluster) podSecurity(level string) {
	c.Helper()
	label := "pod-security.kubernetes.io/enforce="
	if level == "" {
		label = strings.Replace(label, "=", "-", 1)
	}
	if _, stderr, err := c.kubectl("", "label", "--overwrite", "namespace", metav1.NamespaceSystem,
		label+level); err != nil {
		c.Fatalf("kubectl label: %v\n%s", err, stderr)
	}
}

// tryPodAt creates a pod as a dry run in kube-system, with a level of Pod Security.
func (c *cluster) tryPodAt(level string, spec corev1.PodSpec) error {
	c.Helper()
	c.podSecurity(level)
	_, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).Create(c.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"}, Spec: spec},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// alertCases are series in Prometheus, and the alerts that must fire or not fire with them.
var alertCases = []struct {
	name, alert string
	series      []string // a sample a minute
	minute      int
	want        []string // the label that identifies the subject, or "fires" if there is none
}{
	{"agents are connected", "KonnectivityNoAgent", []string{openConnections("a", 0), openConnections("b", 1)}, 1, nil},
	{"no agent is connected", "KonnectivityNoAgent", []string{openConnections("a", 0), openConnections("b", 0)}, 1,
		[]string{"fires"}},
	{"no agent is scraped", "KonnectivityNoAgent", nil, 1, []string{"fires"}},

	{"all have all", "KonnectivityKubeAPIServerWithoutAgent",
		append(kubeAPIServers(1, 1), openConnections("a", 2), openConnections("b", 2)), 1, nil},
	{"one has too few", "KonnectivityKubeAPIServerWithoutAgent",
		append(kubeAPIServers(1, 1), openConnections("a", 2), openConnections("b", 1)), 1, []string{"b"}},
	{"a wrong count", "KonnectivityKubeAPIServerWithoutAgent",
		append(kubeAPIServers(1, 1, 1), openConnections("a", 1), openConnections("b", 1)), 1, []string{"a", "b"}},
	{"one was left behind", "KonnectivityKubeAPIServerWithoutAgent",
		append(kubeAPIServers(1, 1), openConnections("a", 3)), 1, nil},
	{"a kube-apiserver is down", "KonnectivityKubeAPIServerWithoutAgent",
		append(kubeAPIServers(1, 0), openConnections("a", 1)), 1, nil},

	{"knows of all", "KonnectivityServerCountTooHigh", append(kubeAPIServers(1, 0), knownServers("a", 2)), 1, nil},
	{"a count too high", "KonnectivityServerCountTooHigh",
		append(kubeAPIServers(1, 1), knownServers("a", 3), knownServers("b", 2)), 1, []string{"a"}},

	{"kube-apiservers are known", "KonnectivityKubeAPIServersUnknown", kubeAPIServers(1, 0), 1, nil},
	{"all are down", "KonnectivityKubeAPIServersUnknown", kubeAPIServers(0, 0), 1, []string{"fires"}},
	{"another job", "KonnectivityKubeAPIServersUnknown", []string{`up{job="kubelet"} 1 1`}, 1, []string{"fires"}},

	{"a dial fails now and then", "KonnectivityDialsFail",
		[]string{`apiserver_egress_dialer_dial_failure_count{stage="connect"} 0+5x10`}, 10, nil},
	{"dials fail", "KonnectivityDialsFail", []string{
		`apiserver_egress_dialer_dial_failure_count{stage="connect",instance="a"} 0+4x10`,
		`apiserver_egress_dialer_dial_failure_count{stage="connect",instance="b"} 0+4x10`,
		`apiserver_egress_dialer_dial_failure_count{stage="proxy"} 100x10`,
	}, 10, []string{"connect"}},
	{"dials failed once", "KonnectivityEndpointDialsFail",
		[]string{`konnectivity_network_proxy_agent_endpoint_dial_failure_total 500x10`}, 10, nil},
	{"dials of two agents fail", "KonnectivityEndpointDialsFail", []string{
		`konnectivity_network_proxy_agent_endpoint_dial_failure_total{pod="a"} 0+4x10`,
		`konnectivity_network_proxy_agent_endpoint_dial_failure_total{pod="b"} 0+4x10`,
	}, 10, []string{"fires"}},

	{"none is due", "KonnectivityCertificateExpires", []string{`konnectivity_certificates_due{instance="a"} 0 0`}, 1,
		nil},
	{"some are due", "KonnectivityCertificateExpires", []string{`konnectivity_certificates_due{instance="a"} 0 0`,
		`konnectivity_certificates_due{instance="b"} 1 1`}, 1, []string{"b"}},
	{"the check failed", "KonnectivityCertificateExpires",
		[]string{`konnectivity_certificates_due{instance="a"} 127 127`}, 1, []string{"a"}},

	{"checked yesterday", "KonnectivityCertificatesUnchecked",
		append(checked("a", "0x4320", "0x4320"), alive("a")), 1440, nil},
	{"one of two is checked", "KonnectivityCertificatesUnchecked",
		append(checked("a", "0x4320", "0x4320"), alive("a"), alive("b")), 1440, []string{"fires"}},
	{"checked three days ago", "KonnectivityCertificatesUnchecked",
		append(checked("a", "0x4320", "0x4320"), checked("b", "0x4320", "0+60x4320")...), 4320, []string{"a"}},
	{"never checked", "KonnectivityCertificatesUnchecked", []string{alive("a"), `node_textfile_mtime_seconds{instance="a",file="/var/lib/node_exporter/other.prom"} 0x4320`}, 4320, []string{"fires"}},
	{"succeeded yesterday", "KonnectivityCertificateCheckFails",
		append(cronJob("demo"), succeeded("demo", "0+60x4320")), 4320, nil},
	{"succeeded in one of two namespaces", "KonnectivityCertificateCheckFails",
		append(cronJob("demo"), append(cronJob("kube-system"),
			succeeded("demo", "0+60x4320"), succeeded("kube-system", "0x4320"))...), 4320, []string{"kube-system"}},
	{"never succeeded", "KonnectivityCertificateCheckFails", cronJob("demo"), 4320, []string{"demo"}},
	{"new", "KonnectivityCertificateCheckFails", cronJob("demo"), 1440, nil},
	{"checked no more", "KonnectivityCertificatesUnchecked", append(checked("a", "0 0", "0 0"), alive("a")), 60,
		[]string{"fires"}},
}

func openConnections(pod string, servers int) string {
	return fmt.Sprintf("konnectivity_network_proxy_agent_open_server_connections{pod=%q} %d %d", pod, servers, servers)
}

func knownServers(pod string, servers int) string {
	return fmt.Sprintf("konnectivity_network_proxy_agent_known_server_count{pod=%q} %d %d", pod, servers, servers)
}

func kubeAPIServers(up ...int) []string {
	out := []string{`up{job="kubelet",instance="x"} 1 1`}
	for i, n := range up {
		out = append(out, fmt.Sprintf(`up{job="apiserver",instance="%d"} %d %d`, i, n, n))
	}
	return out
}

// alive returns the series of a kube-apiserver that is up for three days.
func alive(instance string) string {
	return fmt.Sprintf(`up{job="apiserver",instance=%q} 1x4320`, instance)
}

// checked returns node_exporter's series of the daily check.
func checked(instance, due, modified string) []string {
	return []string{
		fmt.Sprintf("konnectivity_certificates_due{instance=%q} %s", instance, due),
		fmt.Sprintf(`node_textfile_mtime_seconds{instance=%q,file="/var/lib/node_exporter/konnectivity.prom"} %s`,
			instance, modified),
	}
}

// cronJob returns kube-state-metrics' series of the CronJob of a namespace, and of another one.
// The metrics differ in their other labels.
func cronJob(namespace string) []string {
	return []string{
		fmt.Sprintf(`kube_cronjob_created{namespace=%q,cronjob="konnectivity-certificates",pod="x"} 0x4320`, namespace),
		`kube_cronjob_created{namespace="other",cronjob="other"} 0x4320`,
	}
}

// succeeded returns the series of the last successful Job of the CronJob.
func succeeded(namespace, at string) string {
	return fmt.Sprintf(`kube_cronjob_status_last_successful_time{namespace=%q,cronjob="konnectivity-certificates",pod="y"} %s`, namespace, at)
}

// TestKonnectivityAlerts checks with Prometheus' own engine that each alert fires when it should
// and not otherwise. The alert for missing agents compares them with the number of
// kube-apiservers, which a wrong server count cannot change.
func TestKonnectivityAlerts(t *testing.T) {
	t.Parallel()
	type evaluation struct {
		Expr   string
		Series []string
		Minute int
	}
	expressions, tested := map[string]string{}, map[string]bool{}
	for _, a := range alerts(t, parse(t, konnectivity(t, []string{"agents/base"},
		[]string{"agents/components/monitoring", "certificates/monitoring"}))) {
		expressions[a.Alert] = a.Expr
	}
	var evaluations []evaluation
	for _, tc := range alertCases {
		evaluations = append(evaluations, evaluation{expressions[tc.alert], tc.series, tc.minute})
	}
	var results []struct {
		Error  string
		Labels []map[string]string
	}
	runMonitoring(t, "eval", evaluations, &results)
	for i, tc := range alertCases {
		var got []string
		for _, labels := range results[i].Labels {
			got = append(got, cmp.Or(labels["pod"], labels["stage"], labels["instance"], labels["namespace"], "fires"))
		}
		slices.Sort(got)
		if !slices.Equal(tc.want, got) || results[i].Error != "" {
			t.Errorf("%s: %s: got %q %s, want %q", tc.alert, tc.name, got, results[i].Error, tc.want)
		}
		tested[tc.alert] = tested[tc.alert] || tc.want != nil
	}
	for name := range expressions {
		if !tested[name] {
			t.Errorf("the alert %s never fires in a test", name)
		}
	}
}

// TestKonnectivityNetworkPolicy checks which peers reach an agent directly. kube-apiserver reaches
// agents through any agent.
func TestKonnectivityNetworkPolicy(t *testing.T) {
	t.Parallel()
	objects := parse(t, konnectivity(t, []string{"agents/base"}, []string{"agents/components/network-policy"}))
	policies := only[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy")
	agent := labels.Set{"k8s-app": "konnectivity-agent"}
	to := peer{metav1.NamespaceSystem, agent, "10.244.1.7", map[string]int32{"health": 8093}}
	for name, tc := range map[string]struct {
		from peer
		port int32
		want bool
	}{
		"Prometheus": {peer{"monitoring", labels.Set{"app.kubernetes.io/name": "prometheus"}, "10.244.0.5",
			nil}, 8093, true},
		"another agent": {peer{metav1.NamespaceSystem, agent, "10.244.0.4", nil}, 8093, true},
		"another port":  {peer{metav1.NamespaceSystem, agent, "10.244.0.4", nil}, 8094, false},
		"a neighbour": {peer{metav1.NamespaceSystem, labels.Set{"k8s-app": "kube-dns"}, "10.244.0.3", nil},
			8093, false},
		"with the labels of one": {peer{"default", agent, "10.244.0.9", nil}, 8093, false},
		"anybody from beyond":    {peer{address: "203.0.113.9"}, 8093, false},
	} {
		if got := allowed(t, policies, networkingv1.PolicyTypeIngress, tc.from, to, tc.port,
			corev1.ProtocolTCP); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}
