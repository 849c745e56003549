// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/workshop"
)

const (
	namespace = envtest.Namespace
	name      = envtest.ServiceName
	group     = workshop.GroupName
	trust     = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
)

var shared *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, envtest.Options{Unregistered: true}, &shared))
}

// cluster holds a control plane and clients of an administrator.
type cluster struct {
	*testing.T
	config   *rest.Config
	core     kubernetes.Interface
	services apiregistration.APIServiceInterface
}

func newCluster(t *testing.T, e *envtest.Environment) cluster {
	t.Helper()
	config, err := e.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	services, err := apiregistration.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return cluster{t, config, core, services.APIServices()}
}

// label sets the label app.kubernetes.io/part-of on the namespace of the environment, as deploy
// does. nil removes it.
func (c cluster) label(partOf *string) {
	c.Helper()
	patch, err := json.Marshal(
		map[string]any{"metadata": map[string]any{"labels": map[string]any{"app.kubernetes.io/part-of": partOf}}})
	if err != nil {
		c.Fatal(err)
	}
	if _, err := c.core.CoreV1().Namespaces().Patch(c.Context(), namespace, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		c.Fatal(err)
	}
}

// script runs a script for the overlay of kind, unless the variables name another one. It returns
// the last line of the output, and the whole output.
func script(t *testing.T, command string, variables ...string) (last, out string, err error) {
	t.Helper()
	words := strings.Fields(command)
	cmd := exec.CommandContext(t.Context(), "./"+words[0], words[1:]...)
	cmd.Env = append(append(os.Environ(), "OVERLAY="+overlay(t, kind)), variables...)
	data, err := cmd.CombinedOutput()
	out = strings.TrimSpace(string(data))
	return out[strings.LastIndex(out, "\n")+1:], out, err
}

// The components of the overlays that the tests deploy.
const (
	kind       = "embedded-storage certificates-certgen"
	production = "external-etcd high-availability certificates-certgen network-policy flow-control audit"
)

// overlay writes an overlay of the sample with the components, under the names of the
// environment, and returns its directory. It appends the YAML documents in onTop.
func overlay(t *testing.T, components string, onTop ...string) string {
	t.Helper()
	// The directory is inside the tree, because kustomize accepts no absolute paths.
	dir, err := os.MkdirTemp("../bin", "overlay-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	list := "../../../manifests/components/" + strings.Join(strings.Fields(components),
		", ../../../manifests/components/")
	for path, content := range map[string]string{
		"names": fmt.Sprintf(
			"apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnamespace: %s\nnamePrefix: %s\n", namespace,
			strings.TrimSuffix(name, "apiserver")),
		"all": "resources: [../../../sample/manifests/api]\ncomponents: [" + list +
			", ../names, ../../../manifests/names]\n",
		"": "resources: [all]\n" + strings.Join(onTop, ""),
	} {
		file := filepath.Join(dir, path, "kustomization.yaml")
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700),
			os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return strings.TrimPrefix(dir, "../")
}

// TestDeployRejectsMistakes checks that deploy reports each mistake in one line before it changes
// anything.
func TestDeployRejectsMistakes(t *testing.T) {
	ours, other := name, "somebody"
	nobody, err := shared.Config("nobody")
	if err != nil {
		t.Fatal(err)
	}
	anonymous := rest.AnonymousClientConfig(nobody)
	anonymous.BearerToken = "unknown"
	noAggregation := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"extension-apiserver-authentication","namespace":"kube-system"},"data":{"client-ca-file":"x"}}`
	for what, test := range map[string]struct {
		partOf    *string // label of the namespace
		prepare   func(cluster)
		config    *rest.Config
		responses map[string]string
		variables []string
		want      string
	}{
		"no response": {partOf: &ours, variables: []string{"KUBECONFIG=/nonexistent/kubeconfig"},
			want: "deploy: the cluster of the kubeconfig (/nonexistent/kubeconfig, context none) cannot be used: "},
		"unknown to the cluster": {partOf: &ours, config: anonymous,
			want: "context front) cannot be used: error: You must be logged in to the server (Unauthorized)"},
		"unprivileged": {partOf: &ours, config: nobody,
			want: "deploy: the user of the kubeconfig cannot create apiservices.apiregistration.k8s.io; use a cluster " +
				"administrator"},
		"a cluster too old": {partOf: &ours,
			responses: map[string]string{"/version": `{"major":"1","minor":"29","gitVersion":"v1.29.15"}`},
			want:      "deploy: the cluster runs Kubernetes 1.29.15, and 1.30 or later is required"},
		"no aggregation": {partOf: &ours, responses: map[string]string{trust: noAggregation},
			want: "deploy: the aggregation layer of the cluster is not configured: "},
		"an API that is not served": {partOf: &ours, variables: []string{"OVERLAY=" + overlay(t, kind+" monitoring")},
			want: "deploy: the cluster does not serve monitoring.coreos.com/v1 which "},
		"a foreign namespace": {want: "deploy: Namespace " + namespace + " exists, and does not belong to this deployment"},
		"a namespace of another": {partOf: &other, want: "deploy: Namespace " + namespace +
			" exists, and does not belong to this deployment"},
		"a foreign Service": {partOf: &ours, prepare: foreignService, want: "deploy: Service " + namespace +
			"/" + name + " exists, and does not belong to this deployment"},
		"a foreign APIService": {partOf: &ours, prepare: foreignAPIService(
			&apiregistrationv1.ServiceReference{Namespace: "elsewhere",
				Name: "theirs"}), want: "deploy: APIService v1." + group +
			" belongs to the Service elsewhere/theirs, not to the Service " +
			namespace + "/" + name},
		"a local APIService": {partOf: &ours, prepare: foreignAPIService(nil), want: "deploy: APIService v1." +
			group + " is served by kube-apiserver itself"},
		"two replicas": {partOf: &ours, variables: []string{"OVERLAY=" +
			overlay(t, kind, "replicas: [{name: "+name+", count: 2}]\n")}, want: "has 2 replicas with embedded " +
			"storage, and each would store other objects"},
		"another selector": {partOf: &ours, prepare: otherSelector,
			want: "deploy: kubectl apply --dry-run=server: The StatefulSet \"" + name + "\" is invalid: "},
		"no overlay": {partOf: &ours, variables: []string{"OVERLAY=manifests/none"},
			want: "deploy: OVERLAY is 'manifests/none': must be a directory with a kustomization.yaml"},
		"an image without tag": {partOf: &ours, variables: []string{"IMAGE=registry.example:5000/server"},
			want: "deploy: image 'registry.example:5000/server' has no tag"},
	} {
		t.Run(what, func(t *testing.T) {
			c := newCluster(t, shared)
			c.label(test.partOf)
			if test.prepare != nil {
				test.prepare(c)
			}
			if test.config == nil {
				test.config = c.config
			}
			f, kubeconfig := newFront(t, test.config, test.responses)
			last, out, err := script(t, "deploy.sh", append([]string{"KUBECONFIG=" + kubeconfig}, test.variables...)...)
			if err == nil || !strings.Contains(last, test.want) || strings.Contains(out, "\n") {
				t.Errorf("got %v and:\n%s\nwant one line with %q", err, out, test.want)
			}
			if writes := f.written(); len(writes) > 0 {
				t.Errorf("the cluster was changed: %q", writes)
			}
		})
	}
}

func foreignService(c cluster) {
	c.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}
	services := c.core.CoreV1().Services(namespace)
	if _, err := services.Create(c.Context(), service, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		if err := services.Delete(context.WithoutCancel(c.Context()), name, metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
	})
}

func foreignAPIService(backend *apiregistrationv1.ServiceReference) func(cluster) {
	return func(c cluster) {
		c.Helper()
		apiService := &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: "v1." + group},
			Spec: apiregistrationv1.APIServiceSpec{Group: group, Version: "v1", Service: backend,
				GroupPriorityMinimum: 1000, VersionPriority: 10},
		}
		if _, err := c.services.Create(c.Context(), apiService, metav1.CreateOptions{}); err != nil {
			c.Fatal(err)
		}
		c.Cleanup(func() {
			if err := c.services.Delete(context.WithoutCancel(c.Context()), apiService.Name,
				metav1.DeleteOptions{}); err != nil {
				c.Error(err)
			}
		})
	}
}

// otherSelector applies a StatefulSet with another selector, as an older version of the manifests
// would.
func otherSelector(c cluster) {
	c.Helper()
	labels := map[string]string{"app": name}
	set := appsv1ac.StatefulSet(name, namespace).WithSpec(appsv1ac.StatefulSetSpec().
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).WithSpec(corev1ac.PodSpec().
			WithContainers(corev1ac.Container().WithName("c").WithImage("registry.example/c:v1")))))
	sets := c.core.AppsV1().StatefulSets(namespace)
	if _, err := sets.Apply(c.Context(), set, metav1.ApplyOptions{FieldManager: "kubectl"}); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		if err := sets.Delete(context.WithoutCancel(c.Context()), name, metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
	})
}

// TestDeployWithoutServers checks deploy in a cluster that runs no pods: it creates everything
// that the server needs, does not register the API, and reports the reason. Then undeploy removes
// what deploy created.
func TestDeployWithoutServers(t *testing.T) {
	c := newCluster(t, shared)
	ours := name
	c.label(&ours)
	_, kubeconfig := newFront(t, c.config, nil)
	// The component flow-control has an object with the name of the server's container, which
	// follows that of certgen.
	variables := []string{"KUBECONFIG=" + kubeconfig, "TIMEOUT=2", "OVERLAY=" + overlay(t, kind+" flow-control"),
		"IMAGE=registry.example:5000/s:v1", "CERTGEN_IMAGE=registry.example:5000/c:v2"}
	last, out, err := script(t, "deploy.sh", variables...)
	if err == nil || !strings.HasPrefix(last, "deploy: the servers: timed out after 2 s: ") {
		t.Errorf("got %v, want that the servers did not get ready within 2 s:\n%s", err, out)
	}
	if set, err := c.core.AppsV1().StatefulSets(namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Errorf("the StatefulSet: %v", err)
	} else if got := set.Spec.Template.Spec.Containers[0].Image; got != "registry.example:5000/s:v1" {
		t.Errorf("the StatefulSet: got image %s, want IMAGE", got)
	}
	if job, err := c.core.BatchV1().Jobs(namespace).Get(t.Context(), name+"-certgen-init",
		metav1.GetOptions{}); err != nil {
		t.Errorf("the Job of certgen: %v", err)
	} else if got := job.Spec.Template.Spec.Containers[0].Image; got != "registry.example:5000/c:v2" {
		t.Errorf("the Job of certgen: got image %s, want CERTGEN_IMAGE", got)
	}
	list, err := c.services.List(t.Context(), metav1.ListOptions{})
	if err != nil || slices.ContainsFunc(list.Items, func(s apiregistrationv1.APIService) bool {
		return s.Spec.Group == group
	}) {
		t.Errorf("got APIServices of %s, %v, want none: nothing is behind them", group, err)
	}
	if _, out, err := script(t, "undeploy.sh", append(variables, "TIMEOUT=30")...); err != nil {
		t.Errorf("undeploy: %v\n%s", err, out)
	}
	left, err := c.core.RbacV1().ClusterRoles().List(t.Context(),
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=" + name})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("after undeploy: %d ClusterRoles, %v, want none", len(left.Items), err)
	}
	if _, err := c.core.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); err != nil {
		t.Errorf("after undeploy without PURGE: %v, want the namespace", err)
	}
}
