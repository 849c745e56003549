// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"example.com/extension-apiserver/internal/doctor"
	"example.com/extension-apiserver/pkg/conformance"
	"example.com/extension-apiserver/pkg/envtest"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// otherServer is a server of another module.
type otherServer struct {
	module, version, command string
	server                   envtest.OtherServer
	samples                  map[string]string // paths of objects by resource
}

// metricsServer and customMetrics are servers of metrics.
var (
	metricsServer = otherServer{"sigs.k8s.io/metrics-server", "v0.9.0", "./cmd/metrics-server", envtest.OtherServer{
		GroupVersions: []schema.GroupVersion{{Group: "metrics.k8s.io", Version: "v1beta1"}},
		Args:          []string{"--kubelet-use-node-status-port", "--metric-resolution=10s", "--kubelet-request-timeout=5s"},
	}, map[string]string{"nodes": "/apis/metrics.k8s.io/v1beta1/nodes/node",
		"pods": "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/pod"}}
	// This server also listens on port 8080 for values.
	customMetrics = otherServer{"sigs.k8s.io/custom-metrics-apiserver", "v1.37.0", "./test-adapter", envtest.OtherServer{
		GroupVersions:  []schema.GroupVersion{{Group: "external.metrics.k8s.io", Version: "v1beta1"}},
		KubeconfigFlag: "lister-kubeconfig",
	}, map[string]string{"externalmetrics": "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/my-external-metric"}}
)

// TestMetrics runs the checks and the doctor against metrics servers. Clients cannot create their
// objects, and the objects are not in etcd.
func TestMetrics(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped in short mode: compiles two servers with libraries of their own")
	}
	e := envtest.New(t, envtest.Options{})
	grantReads(t, e)
	kubelet := newKubelet(t, e)
	for _, other := range []otherServer{metricsServer, customMetrics} {
		t.Run(filepath.Base(other.module), func(t *testing.T) {
			other.server.Path = buildModule(t, other.module, other.version, other.command)
			if other.module == metricsServer.module {
				other.server.Args = append(other.server.Args, "--kubelet-certificate-authority="+kubelet)
			}
			if _, err := e.StartOther(t.Context(), other.server); err != nil {
				t.Fatal(err)
			}
			for resource, path := range other.samples {
				t.Run(resource, func(t *testing.T) {
					target := readTarget(t, e, other.server.GroupVersions[0].WithResource(resource), path)
					report := reads(t, target)
					asExpected(t, report, target.Resource, expectations(t, "expected.yaml"))
					recorded(t, report, target.Resource)
				})
			}
			undiagnosed(t, e, other.server.GroupVersions[0])
		})
	}
}

// undiagnosed waits until the doctor has read the API and has no finding.
func undiagnosed(t *testing.T, e *envtest.Environment, gv schema.GroupVersion) {
	t.Helper()
	e.Eventually(t, "no finding of the doctor", 2*time.Minute, func(ctx context.Context) error {
		facts, err := doctor.Collect(ctx, e.Admin(t), doctor.Options{APIServices: []string{gv.Version + "." + gv.Group}})
		if err != nil {
			return err
		}
		if report := doctor.NewReport(facts); len(report.RootCauses) > 0 || len(report.Unread) > 0 {
			return fmt.Errorf("got the root causes %+v, and did not read %v", report.RootCauses, report.Unread)
		}
		return nil
	})
}

// TestSources runs the checks of existing objects against kinds of test/conformance/sourceserver.
func TestSources(t *testing.T) {
	const server = "example.com/extension-apiserver/test/conformance/sourceserver"
	e := envtest.New(t, envtest.Options{Server: server})
	for resource, path := range map[string]string{
		"parts": "parts/bolt", "widgets": "namespaces/default/widgets/first", "gadgets": "gadgets/first",
	} {
		t.Run(resource, func(t *testing.T) {
			target := readTarget(t, e, v1.SchemeGroupVersion.WithResource(resource), "/apis/workshop.example.com/v1/"+path)
			target.Only, target.CheckTimeout = []string{"existing"}, 10*time.Second
			recorded(t, reads(t, target), target.Resource)
		})
	}
}

// outcomesFile has the outcomes of the checks of an existing object, by resource and check.
var outcomesFile = filepath.Join("testdata", "existing.json")

func outcomes(t *testing.T) map[string]map[string]conformance.Outcome {
	t.Helper()
	all := map[string]map[string]conformance.Outcome{}
	data, err := os.ReadFile(outcomesFile)
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil && (!*update || !os.IsNotExist(err)) {
		t.Fatal(err)
	}
	return all
}

// recorded compares the outcomes of the checks of an existing object with those in outcomesFile, or
// writes them with -update.
func recorded(t *testing.T, report *conformance.Report, resource string) {
	t.Helper()
	got, all := map[string]conformance.Outcome{}, outcomes(t)
	for _, result := range report.Results {
		if strings.HasPrefix(result.ID, "existing/") {
			got[result.ID] = result.Outcome
		}
	}
	if diff := cmp.Diff(all[resource], got); diff != "" && !*update {
		t.Errorf("outcomes (-recorded +got):\n%s", diff)
	}
	if all[resource] = got; *update {
		data, err := json.MarshalIndent(all, "", "  ")
		if err := errors.Join(err, os.WriteFile(outcomesFile, append(data, '\n'), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// published waits until kube-apiserver has fetched the server's discovery and OpenAPI.
func published(t *testing.T, e *envtest.Environment, resource schema.GroupVersionResource) {
	t.Helper()
	client := clientFor(t, e).Discovery()
	e.Eventually(t, "discovery and OpenAPI of "+resource.String(), time.Minute, func(ctx context.Context) error {
		apis, err := client.RESTClient().Get().AbsPath("/apis").SetHeader("Accept",
			"application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList").DoRaw(ctx)
		paths, errPaths := client.OpenAPIV3().Paths()
		if err := errors.Join(err, errPaths); err != nil {
			return err
		}
		if _, ok := paths["apis/"+resource.GroupVersion().String()]; !ok ||
			!bytes.Contains(apis, []byte(`"name":"`+resource.Group+`"`)) {
			return errors.New("not yet")
		}
		return nil
	})
}

// readTarget returns a target with the object at a path as the sample.
func readTarget(t *testing.T, e *envtest.Environment, resource schema.GroupVersionResource,
	path string) conformance.Target {
	t.Helper()
	target, err := e.ConformanceTarget()
	if err != nil {
		t.Fatal(err)
	}
	sample := &unstructured.Unstructured{}
	e.Eventually(t, "GET "+path, time.Minute, func(ctx context.Context) error {
		data, err := clientFor(t, e).RESTClient().Get().AbsPath(path).DoRaw(ctx)
		if err != nil {
			return err
		}
		return json.Unmarshal(data, &sample.Object)
	})
	published(t, e, resource)
	return conformance.Target{Config: target.Config, Kubectl: target.Kubectl, AllowDisruptive: true, Sample: sample,
		Resource: resource.Resource + "." + resource.Version + "." + resource.Group}
}

// reads runs the checks.
func reads(t *testing.T, target conformance.Target) *conformance.Report {
	t.Helper()
	report, err := conformance.Execute(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f s: %d passed, %d failed, %d skipped", report.Seconds, report.Count("", conformance.Passed),
		report.Count("", conformance.Failed), report.Count("", conformance.Skipped))
	return report
}

// buildModule compiles a command of a module with the module's own dependencies.
func buildModule(t *testing.T, module, version, command string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module+"@"+version).Output()
	downloaded := struct{ Dir string }{}
	if err := errors.Join(err, json.Unmarshal(out, &downloaded)); err != nil {
		t.Fatalf("download %s: %v\n%s", module, err, out)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "source"), os.DirFS(downloaded.Dir)); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, filepath.Base(module))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-o", program, command)
	cmd.Dir = filepath.Join(dir, "source")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", module, err, out)
	}
	return program
}

// grantReads allows the server to read nodes and pods, and to scrape kubelets.
func grantReads(t *testing.T, e *envtest.Environment) {
	t.Helper()
	client := clientFor(t, e)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "metrics"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "pods", "namespaces", "configmaps"},
			Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "metrics"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "metrics"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: envtest.Namespace, Name: envtest.ServiceName}}}
	_, errRole := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	_, errBinding := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	if err := errors.Join(errRole, errBinding); err != nil {
		t.Fatal(err)
	}
}

// newKubelet serves the metrics of two nodes and two pods, because the environment has no real
// kubelet. It creates these objects, and returns the path of its CA file.
func newKubelet(t *testing.T, e *envtest.Environment) (ca string) {
	t.Helper()
	began := time.Now()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := time.Now()
		seconds, ms := now.Sub(began).Seconds(), now.UnixMilli()
		fmt.Fprintf(w, "node_cpu_usage_seconds_total %f %d\nnode_memory_working_set_bytes 1e+08 %d\n",
			seconds+1, ms, ms)
		for _, pod := range []string{"pod", "other"} {
			of := fmt.Sprintf(`{container="c",namespace="default",pod=%q}`, pod)
			fmt.Fprintf(w, "container_cpu_usage_seconds_total%s %f %d\ncontainer_memory_working_set_bytes%s 1e+07 %d\n", of,
				seconds+1, ms, of, ms)
			fmt.Fprintf(w, "container_start_time_seconds%s %d %d\n", of, began.Unix()-60, ms)
		}
	}))
	t.Cleanup(server.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	host, port, err := net.SplitHostPort(strings.TrimPrefix(server.URL, "https://"))
	number, errPort := strconv.ParseInt(port, 10, 32)
	if err := errors.Join(err, errPort, os.WriteFile(ca, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	client := clientFor(t, e)
	for _, name := range []string{"node", "other"} {
		if err := newNode(t.Context(), client, name, host, int32(number)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"pod", "other"} {
		// A pod needs the ServiceAccount of the namespace.
		e.Eventually(t, "the pod "+name, time.Minute, func(ctx context.Context) error { return newPod(ctx, client, name) })
	}
	return ca
}

func newNode(ctx context.Context, client kubernetes.Interface, name, address string, port int32) error {
	node, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{"a": "b"}}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	node.Status = corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
		Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
	}
	_, err = client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

func newPod(ctx context.Context, client kubernetes.Interface, name string) error {
	pod, err := client.CoreV1().Pods("default").Create(ctx,
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"a": "b"}},
			Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "c",
				Image: "registry.example/c:v1"}}}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
	_, err = client.CoreV1().Pods("default").UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}
