// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// konnectivity renders resources and components of the folder konnectivity; one that ends with .yaml is a file of its tests.
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
	writeFile(t, filepath.Join(dir, "kustomization.yaml"), fmt.Sprintf("resources: %s\ncomponents: %s\n", list(resources), list(components)))
	return kustomize(t, dir)
}

// konnectivitySets are what is applied together, with the level of Pod Security that its pods meet.
var konnectivitySets = []struct {
	level                 string
	resources, components []string
}{
	{"restricted", []string{"server/rbac"}, nil},
	{"restricted", []string{"agents/base"}, []string{"agents/components/network-policy", "agents/components/monitoring"}},
	{"restricted", []string{"agents/base"}, []string{"agents/components/daemonset"}},
	{"restricted", []string{"agents/base"}, []string{"agents/components/mtls"}},
	{"privileged", []string{"server/static-pod", "kube-apiserver-pod.yaml"}, []string{"server/kube-apiserver"}},
	{"privileged", []string{"server/static-pod"}, []string{"server/static-pod/components/mtls", "server/static-pod/components/http-connect-tcp"}},
	{"privileged", []string{"server/static-pod"}, []string{"server/static-pod/components/http-connect-uds"}},
	{"baseline", []string{"kube-apiserver-deployment.yaml"}, []string{"server/sidecar", "images"}},
	{"baseline", []string{"kube-apiserver-deployment.yaml"}, []string{"server/sidecar", "server/sidecar/components/mtls",
		"server/sidecar/components/http-connect-uds", "images"}},
}

// testKonnectivity has kube-apiserver try every object of konnectivity, and every pod that would be made of them at its level of Pod
// Security. Static pods need what kubelet gives them: the network and directories of the node.
func testKonnectivity(c *cluster) {
	c.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: clusters-demo}\n")
	// A dry run finds only what is there.
	c.apply(c.pick(konnectivity(c, []string{"server/rbac", "agents/base"}, nil), "Namespace", "ServiceAccount"))
	defer c.podSecurity("") // the next test finds what it expects
	for _, set := range konnectivitySets {
		text := konnectivity(c, set.resources, set.components)
		c.podSecurity(set.level)
		c.apply(text, "--dry-run=server", "--validate=strict")
		for _, w := range slices.Concat(workloads(c, parse(c, text)), staticPods(c, text)) {
			if err := c.tryPodAt(set.level, w.pod.Spec); err != nil {
				c.Errorf("%q: pod of %s %s: %v", set.components, w.GetKind(), w.GetName(), err)
			}
			// The level is the strictest.
			if stricter := map[string]string{"privileged": "baseline", "baseline": "restricted"}[set.level]; stricter != "" {
				if err := c.tryPodAt(stricter, w.pod.Spec); err == nil {
					c.Errorf("%q: pod of %s %s is admitted at the level %s", set.components, w.GetKind(), w.GetName(), stricter)
				}
			}
			if set.level == "baseline" {
				// What is not strict there is kube-apiserver's.
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

// staticPods are Pods in manifests, as workloads.
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

// podSecurity labels kube-system with a level that it enforces; none is no label.
func (c *cluster) podSecurity(level string) {
	c.Helper()
	label := "pod-security.kubernetes.io/enforce="
	if level == "" {
		label = strings.Replace(label, "=", "-", 1)
	}
	if _, stderr, err := c.kubectl("", "label", "--overwrite", "namespace", metav1.NamespaceSystem, label+level); err != nil {
		c.Fatalf("kubectl label: %v\n%s", err, stderr)
	}
}

// tryPodAt creates a pod as a dry run in kube-system, with a level of Pod Security.
func (c *cluster) tryPodAt(level string, spec corev1.PodSpec) error {
	c.Helper()
	c.podSecurity(level)
	_, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).Create(c.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"}, Spec: spec}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// TestKonnectivityAlerts: Prometheus' parser reads each alert, and the one for missing agents compares them with the number of
// kube-apiservers, which a wrong count of servers cannot change.
func TestKonnectivityAlerts(t *testing.T) {
	asked := map[string]map[string]bool{} // metrics by alert
	for _, a := range alerts(t, parse(t, konnectivity(t, []string{"agents/base"}, []string{"agents/components/monitoring"}))) {
		q := parsePromQL(t, a.Expr)[0]
		if q.Error != "" {
			t.Errorf("%s: %s", a.Alert, q.Error)
		}
		asked[a.Alert] = map[string]bool{}
		for _, s := range q.Selectors {
			for _, m := range s {
				if m.Label == "__name__" {
					asked[a.Alert][m.Value] = true
				}
			}
		}
	}
	want := map[string]bool{"konnectivity_network_proxy_agent_open_server_connections": true, "up": true}
	if diff := cmp.Diff(want, asked["KonnectivityKubeAPIServerWithoutAgent"]); diff != "" {
		t.Errorf("metrics of the alert for missing agents (-want +got):\n%s", diff)
	}
	if !asked["KonnectivityCertificateExpires"]["konnectivity_certificates_due"] {
		t.Errorf("no alert asks for the metric of the daily check: %v", asked)
	}
}

// TestKonnectivityNetworkPolicy: who reaches an agent. kube-apiserver does through any agent.
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
		"Prometheus":          {peer{"monitoring", labels.Set{"app.kubernetes.io/name": "prometheus"}, "10.244.0.5", nil}, 8093, true},
		"another agent":       {peer{metav1.NamespaceSystem, agent, "10.244.0.4", nil}, 8093, true},
		"another port":        {peer{metav1.NamespaceSystem, agent, "10.244.0.4", nil}, 8094, false},
		"a neighbour":         {peer{metav1.NamespaceSystem, labels.Set{"k8s-app": "kube-dns"}, "10.244.0.3", nil}, 8093, false},
		"who says it is one":  {peer{"default", agent, "10.244.0.9", nil}, 8093, false},
		"anybody from beyond": {peer{address: "203.0.113.9"}, 8093, false},
	} {
		if got := allowed(t, policies, networkingv1.PolicyTypeIngress, tc.from, to, tc.port, corev1.ProtocolTCP); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}
