// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/envtest"
)

var shared *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, envtest.Options{}, &shared))
}

const (
	serviceName = "server"
	resource    = "things"
	schemas     = `{"X": {"type": "object"}}`
	// account is the ServiceAccount of the kit's server.
	account = "extension-apiserver"
)

// fixture is what a fault is injected into: an API of its own group, with a CA and a namespace.
type fixture struct {
	*testing.T
	env                   *envtest.Environment
	client                kubernetes.Interface
	apiServices           apiregistration.APIServiceInterface
	namespace, group, dir string
	ca                    *authority
}

func newFixture(t *testing.T, e *envtest.Environment, group string) *fixture {
	t.Helper()
	client, err := apiregistration.NewForConfig(e.Admin(t))
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{T: t, env: e, client: e.Client(t), apiServices: client.APIServices(), namespace: e.NewNamespace(t),
		group: group + ".faults.example.com", dir: t.TempDir(), ca: newAuthority(t, nil)}
}

// serverName is the name that kube-aggregator verifies.
func (f *fixture) serverName() string { return serviceName + "." + f.namespace + ".svc" }

// certificate returns a certificate of the CA with a change.
func (f *fixture) certificate(change func(*x509.Certificate)) tls.Certificate {
	return f.ca.issue(f.T, f.serverName(), change)
}

// healthy returns the handler of a healthy API.
func (f *fixture) healthy() *http.ServeMux { return api(f.group, resource, schemas) }

// register creates a Service for a port of this machine and an APIService for it, with a change.
func (f *fixture) register(port int32, change func(*apiregistrationv1.APIServiceSpec)) {
	f.service(corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost", Selector: selector})
	f.registerAt(port, change)
}

func (f *fixture) service(spec corev1.ServiceSpec) {
	f.Helper()
	_, err := f.client.CoreV1().Services(f.namespace).Create(f.Context(),
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: serviceName}, Spec: spec}, metav1.CreateOptions{})
	f.must(err)
}

// registerAt creates an APIService and deletes it at the end of the test.
func (f *fixture) registerAt(port int32, change func(*apiregistrationv1.APIServiceSpec)) {
	f.Helper()
	f.registerVersion("v1", port, change)
}

func (f *fixture) registerVersion(version string, port int32, change func(*apiregistrationv1.APIServiceSpec)) {
	f.Helper()
	a := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: version + "." + f.group},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: f.group, Version: version, GroupPriorityMinimum: 100, VersionPriority: 10, CABundle: f.ca.pem(),
			Service: &apiregistrationv1.ServiceReference{Namespace: f.namespace, Name: serviceName, Port: &port},
		},
	}
	if change != nil {
		change(&a.Spec)
	}
	_, err := f.apiServices.Create(f.Context(), a, metav1.CreateOptions{})
	f.must(err)
	f.atEnd(func(ctx context.Context) error { return f.apiServices.Delete(ctx, a.Name, metav1.DeleteOptions{}) })
	scripttest.Write(f.T, filepath.Join(f.dir, "ca.crt"), string(f.ca.pem()))
}

// injected annotates the APIService, as one whose caBundle cert-manager writes.
func (f *fixture) injected() {
	f.Helper()
	_, err := f.apiServices.Patch(f.Context(), "v1."+f.group, types.MergePatchType, fmt.Appendf(nil,
		`{"metadata": {"annotations": {"cert-manager.io/inject-ca-from": "%s/serving"}}}`, f.namespace),
		metav1.PatchOptions{})
	f.must(err)
}

// slice creates an EndpointSlice of the Service.
func (f *fixture) slice(portName string, conditions discoveryv1.EndpointConditions) {
	f.Helper()
	f.sliceOf(serviceName, portName, conditions)
}

func (f *fixture) sliceOf(service, portName string, conditions discoveryv1.EndpointConditions) {
	f.Helper()
	_, err := f.client.DiscoveryV1().EndpointSlices(f.namespace).Create(f.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: service,
			Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: new(int32(443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.130.0.99"},
			Conditions: conditions}},
	}, metav1.CreateOptions{})
	f.must(err)
}

// clusterIP is the spec of a Service with a ClusterIP and a port.
func clusterIP(port int32, selector map[string]string) corev1.ServiceSpec {
	return corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: port}}, Selector: selector}
}

// selector selects the pods of a fixture.
var selector = map[string]string{"app": serviceName}

// pod returns a pod with the label app and a ServiceAccount.
func pod(namespace, app, serviceAccount string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{ServiceAccountName: serviceAccount,
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "server", Image: "server", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}}},
	}
}

// createPod creates a pod with a status, and deletes it at the end of the test. No kubelet starts
// it.
func createPod(t *testing.T, e *envtest.Environment, pod *corev1.Pod, status corev1.PodStatus) {
	t.Helper()
	pods := e.Client(t).CoreV1().Pods(pod.Namespace)
	var created *corev1.Pod
	// The namespace's ServiceAccount "default" may not exist yet.
	e.Eventually(t, "a pod", envtest.WaitTimeout, func(ctx context.Context) (err error) {
		created, err = pods.Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() {
		if err := pods.Delete(context.WithoutCancel(t.Context()), pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0))}); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete pod: %v", err)
		}
	})
	if created.Status = status; status.Phase == "" {
		return
	}
	if _, err := pods.UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// pod creates a pod of the Service, with a ServiceAccount that has no permissions.
func (f *fixture) pod(status corev1.PodStatus, changes ...func(*corev1.Pod)) {
	f.Helper()
	_, err := f.client.CoreV1().ServiceAccounts(f.namespace).Create(f.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: serviceName}}, metav1.CreateOptions{})
	f.must(err)
	p := pod(f.namespace, serviceName, serviceName)
	for _, change := range changes {
		change(p)
	}
	createPod(f.T, f.env, p, status)
}

// running is the status of a pod that is ready, and waiting that of one whose container waits.
var running = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.130.0.98",
	PodIPs:     []corev1.PodIP{{IP: "10.130.0.98"}},
	Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}

func waiting(reason string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "server",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "back-off"}}}}}
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// atEnd runs an action at the end of the test. It ignores objects that do not exist.
func (f *fixture) atEnd(action func(context.Context) error) {
	f.Cleanup(func() {
		if err := action(context.WithoutCancel(f.Context())); err != nil && !apierrors.IsNotFound(err) {
			f.Errorf("at the end: %v", err)
		}
	})
}

// apply creates an object with kubectl and deletes it at the end of the test.
func (f *fixture) apply(object string) {
	f.Helper()
	kubectl := envtest.Kubectl{Stdin: object}
	_, stderr, err := kubectl.Run(f.Context(), f.env, "create", "-f", "-")
	if err != nil {
		f.Fatalf("%v: %s", err, stderr)
	}
	f.atEnd(func(ctx context.Context) error {
		_, stderr, err := kubectl.Run(ctx, f.env, "delete", "--ignore-not-found", "-f", "-")
		if err != nil {
			return fmt.Errorf("%w: %s", err, stderr)
		}
		return nil
	})
}

// revokeDelegator deletes the binding of the kit's server to system:auth-delegator until the end
// of the test.
func (f *fixture) revokeDelegator() {
	f.Helper()
	bindings := f.client.RbacV1().ClusterRoleBindings()
	list, err := bindings.List(f.Context(), metav1.ListOptions{})
	f.must(err)
	for _, b := range list.Items {
		if b.RoleRef.Name != "system:auth-delegator" || !ofServer(b.Subjects) {
			continue
		}
		f.must(bindings.Delete(f.Context(), b.Name, metav1.DeleteOptions{}))
		f.atEnd(func(ctx context.Context) error {
			_, err := bindings.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: b.Name},
				RoleRef: b.RoleRef, Subjects: b.Subjects}, metav1.CreateOptions{})
			return err
		})
	}
	f.atEnd(func(ctx context.Context) error { // that of the repair
		return bindings.Delete(ctx, account+":"+envtest.Namespace+":auth-delegator", metav1.DeleteOptions{})
	})
	f.awaitReview()
}

// awaitReview waits until the kit's server cannot authorize a request, upon which it reviews its
// permissions.
func (f *fixture) awaitReview() {
	f.Helper()
	user := envtest.NewEndpoint(f.T, shared.User(f.T, "reviewed", rbacv1.PolicyRule{
		APIGroups: []string{"workshop.example.com"}, Resources: []string{"widgets"}, Verbs: []string{"list"}}))
	shared.Eventually(f.T, "a request that the server cannot authorize", envtest.WaitTimeout,
		func(context.Context) error {
			response := user.Do(f.T, http.MethodGet, "/apis/workshop.example.com/v1/widgets", nil, nil)
			if !strings.Contains(string(response.Body), "authorization check failed") {
				return fmt.Errorf("got %d: %s", response.Status, response.Body)
			}
			return nil
		})
}

// revokeReader deletes the RoleBinding of the kit's server for the trusted CA until the end of the
// test, and returns it.
func (f *fixture) revokeReader() rbacv1.RoleBinding {
	f.Helper()
	var revoked rbacv1.RoleBinding
	bindings := f.client.RbacV1().RoleBindings(metav1.NamespaceSystem)
	list, err := bindings.List(f.Context(), metav1.ListOptions{})
	f.must(err)
	for _, b := range list.Items {
		if b.RoleRef.Name != "extension-apiserver-authentication-reader" || !ofServer(b.Subjects) {
			continue
		}
		f.must(bindings.Delete(f.Context(), b.Name, metav1.DeleteOptions{}))
		revoked = rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: b.Name}, RoleRef: b.RoleRef, Subjects: b.Subjects}
		f.atEnd(func(ctx context.Context) error {
			_, err := bindings.Create(ctx, &revoked, metav1.CreateOptions{})
			return err
		})
	}
	f.atEnd(func(ctx context.Context) error { // that of the repair
		return bindings.Delete(ctx, account+":"+envtest.Namespace+":authentication-reader", metav1.DeleteOptions{})
	})
	return revoked
}

func ofServer(subjects []rbacv1.Subject) bool {
	return len(subjects) == 1 && subjects[0].Name == account && subjects[0].Namespace == envtest.Namespace
}
