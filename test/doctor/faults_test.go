// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/pkg/envtest"
)

// fault is a fault that is injected into a healthy cluster.
type fault struct {
	name   string
	inject func(*fixture)
	id     string // of the only root cause
	// explains are the IDs of findings that the root cause must explain, among others.
	explains []string
	// later is added to the time of the doctor, for findings that it does not report before
	// kube-apiserver must have read the API again.
	later time.Duration
	// repaired means that the printed commands repair the fault.
	repaired bool
	// slow faults are not injected with -short.
	slow bool
}

var faults = []fault{
	{name: "no Service", id: "S01", explains: []string{"A01", "D07"}, repaired: true, inject: func(f *fixture) {
		f.registerAt(443, nil)
	}},
	{name: "another port", id: "S02", explains: []string{"A01"}, repaired: true, inject: func(f *fixture) {
		f.service(clusterIP(8443, nil))
		f.slice("https", true)
		f.registerAt(443, nil)
	}},
	{name: "another port name", id: "S03", explains: []string{"K12", "A01"}, repaired: true, inject: func(f *fixture) {
		f.service(clusterIP(443, nil))
		f.slice("http", true)
		f.registerAt(443, nil)
	}},
	{name: "selector without pods", id: "S04", explains: []string{"K12", "A01"}, inject: func(f *fixture) {
		f.service(clusterIP(443, map[string]string{"app": "none"}))
		f.registerAt(443, nil)
	}},
	{name: "crashing pod", id: "S05", explains: []string{"K12", "A01"}, inject: func(f *fixture) {
		crashing := f.pod()
		crashing.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "server", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}}}}
		_, err := f.client.CoreV1().Pods(crashing.Namespace).UpdateStatus(f.Context(), crashing, metav1.UpdateOptions{})
		f.must(err)
		f.service(clusterIP(443, selector))
		f.registerAt(443, nil)
	}},
	{name: "no endpoint is ready", id: "K12", explains: []string{"A01"}, inject: func(f *fixture) {
		f.service(clusterIP(443, nil))
		f.slice("https", false)
		f.registerAt(443, nil)
	}},
	{name: "no EndpointSlices", id: "K12", explains: []string{"A01"}, inject: func(f *fixture) {
		f.service(clusterIP(443, nil))
		f.registerAt(443, nil)
	}},
	{name: "server down", id: "S06", explains: []string{"A01"}, inject: (*fixture).registerDown},

	{name: "insecure", id: "K01", repaired: true, inject: func(f *fixture) {
		f.register(serve(f.T, f.certificate(nil), f.healthy()), func(s *apiregistrationv1.APIServiceSpec) {
			s.CABundle, s.InsecureSkipTLSVerify = nil, true
		})
	}},
	{name: "empty caBundle", id: "K02", explains: []string{"K03", "A01"}, repaired: true, inject: func(f *fixture) {
		f.register(serve(f.T, f.certificate(nil), f.healthy()), func(s *apiregistrationv1.APIServiceSpec) {
			s.CABundle = nil
		})
	}},
	{name: "another CA", id: "K03", explains: []string{"A01"}, repaired: true, inject: func(f *fixture) {
		f.register(serve(f.T, f.certificate(nil), f.healthy()), func(s *apiregistrationv1.APIServiceSpec) {
			s.CABundle = newAuthority(f.T, time.Now().Add(time.Hour)).pem()
		})
	}},
	{name: "expired CA", id: "K04", explains: []string{"C07", "A01"}, inject: func(f *fixture) {
		f.ca = newAuthority(f.T, time.Now().Add(-time.Hour))
		f.register(serve(f.T, f.certificate(nil), f.healthy()), nil)
	}},
	{name: "expired certificate", id: "C07", explains: []string{"A01"}, inject: func(f *fixture) {
		f.registerWith(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) })
	}},
	{name: "certificate for another name", id: "C04", explains: []string{"A01"}, inject: func(f *fixture) {
		f.registerWith(func(c *x509.Certificate) { c.DNSNames = []string{"localhost"} })
	}},
	{name: "certificate with a common name only", id: "C04", explains: []string{"A01"}, inject: func(f *fixture) {
		f.registerWith(func(c *x509.Certificate) { c.DNSNames = nil })
	}},
	{name: "client certificate", id: "C02", explains: []string{"A01"}, inject: func(f *fixture) {
		f.registerWith(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
	}},

	{name: "slow discovery", id: "D01", explains: []string{"A01"}, inject: func(f *fixture) {
		f.respond(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
	}},
	{name: "version not served", id: "D02", explains: []string{"A01"}, repaired: true,
		inject: status(http.StatusNotFound)},
	{name: "front proxy not trusted", id: "D03", explains: []string{"A01"}, inject: status(http.StatusUnauthorized)},
	{name: "discovery not authorized", id: "D03", explains: []string{"A01"}, inject: status(http.StatusForbidden)},
	{name: "redirect", id: "D04", explains: []string{"A01"}, inject: func(f *fixture) {
		f.respond(func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, req.URL.Path+"/", http.StatusMovedPermanently)
		})
	}},
	{name: "internal error", id: "D05", explains: []string{"A01"}, inject: status(http.StatusInternalServerError)},
	{name: "error for users", id: "K08", inject: forUsers("database is down")},
	{name: "denied SubjectAccessReview", id: "R02", inject: forUsers(`subjectaccessreviews.authorization.k8s.io is ` +
		`forbidden: User "system:serviceaccount:a:b" cannot create resource "subjectaccessreviews"`)},
	{name: "no resources", id: "D06", repaired: true, inject: func(f *fixture) {
		f.register(serve(f.T, f.certificate(nil), api(f.group, "", schemas)), nil)
	}},
	{name: "no OpenAPI", id: "O01", later: 2 * time.Minute, inject: func(f *fixture) {
		f.register(serve(f.T, f.certificate(nil), api(f.group, resource, "")), nil)
	}},
	{name: "dangling reference", id: "O02", later: 2 * time.Minute, inject: func(f *fixture) {
		f.register(serve(f.T, f.certificate(nil), api(f.group, resource,
			`{"X": {"$ref": "#/components/schemas/Missing"}}`)), nil)
	}},

	{name: "CustomResourceDefinition of the same version", id: "A02", inject: func(f *fixture) {
		f.register(serve(f.T, f.certificate(nil), f.healthy()), nil)
		f.apply(fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
metadata: {name: others.%[1]s}, spec: {group: %[1]s, scope: Namespaced, names: {plural: others, kind: Other},
versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`, f.group))
	}},
	{name: "resource of a built-in group", id: "A03", repaired: true, inject: func(f *fixture) {
		f.register(serve(f.T, f.certificate(nil), api(f.group, "deployments", schemas)),
			func(s *apiregistrationv1.APIServiceSpec) { s.GroupPriorityMinimum = 19000 })
	}},
	{name: "webhook without a Service", id: "W01", inject: func(f *fixture) {
		f.register(serve(f.T, f.certificate(nil), f.healthy()), nil)
		f.apply(fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration,
metadata: {name: %[1]s}, webhooks: [{name: check.%[1]s, admissionReviewVersions: [v1], sideEffects: None,
clientConfig: {service: {namespace: %[2]s, name: gone}}, rules: [{apiGroups: [%[1]s], apiVersions: ["*"],
operations: [CREATE], resources: ["*"]}]}]}`, f.group, f.namespace))
	}},
	{name: "namespace in Terminating", id: "S06", explains: []string{"A01", "D07", "N01"}, inject: func(f *fixture) {
		f.must(shared.WaitControllers(f.Context()))
		f.registerDown()
		namespaces := f.client.CoreV1().Namespaces()
		stuck, err := namespaces.Create(f.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "stuck-"}}, metav1.CreateOptions{})
		f.must(err)
		f.must(namespaces.Delete(f.Context(), stuck.Name, metav1.DeleteOptions{}))
	}},

	// The server reviews its permissions each minute.
	{name: "no RoleBinding", id: "R01", explains: []string{"R03"}, slow: true, repaired: true,
		inject: func(f *fixture) { f.revokeReader() }},
	{name: "front proxy not trusted without a RoleBinding", id: "R01", explains: []string{"D03", "A01"}, repaired: true,
		inject: func(f *fixture) {
			f.pod()
			f.respond(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
		}},
	{name: "RoleBinding in the wrong namespace", id: "R01", inject: func(f *fixture) {
		moved := f.revokeReader()
		bindings := f.client.RbacV1().RoleBindings(envtest.Namespace)
		_, err := bindings.Create(f.Context(), &moved, metav1.CreateOptions{})
		f.must(err)
		f.atEnd(func(ctx context.Context) error { return bindings.Delete(ctx, moved.Name, metav1.DeleteOptions{}) })
	}},
	{name: "no binding to system:auth-delegator", id: "R02", explains: []string{"R03"}, repaired: true,
		inject: func(f *fixture) { f.revokeDelegator() }},
	{name: "no permission for SubjectAccessReviews", id: "R02", inject: func(f *fixture) {
		f.must(shared.Grant(f.Context(), "system:serviceaccount:"+envtest.Namespace+":"+account, rbacv1.PolicyRule{
			APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}}))
		f.revokeDelegator()
	}},
	{name: "permission of the server", id: "R03", slow: true, inject: func(f *fixture) {
		roles := f.client.RbacV1().ClusterRoles()
		role, err := roles.Get(f.Context(), account, metav1.GetOptions{})
		f.must(err)
		before := role.DeepCopy().Rules
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Resources, "validatingwebhookconfigurations")
		})
		role, err = roles.Update(f.Context(), role, metav1.UpdateOptions{})
		f.must(err)
		f.atEnd(func(ctx context.Context) error {
			role.Rules = before
			_, err := roles.Update(ctx, role, metav1.UpdateOptions{})
			return err
		})
	}},
}

// registerDown registers an API whose server does not listen.
func (f *fixture) registerDown() {
	port, err := strconv.ParseInt(shared.FreePort(f.T), 10, 32)
	f.must(err)
	f.register(int32(port), nil)
}

// registerWith registers an API whose certificate has a change.
func (f *fixture) registerWith(change func(*x509.Certificate)) {
	f.register(serve(f.T, f.certificate(change), f.healthy()), nil)
}

// respond registers an API whose server responds to all requests with the handler.
func (f *fixture) respond(handler http.HandlerFunc) {
	f.register(serve(f.T, f.certificate(nil), handler), nil)
}

// status returns an injection of a server that responds with the status.
func status(code int) func(*fixture) {
	return func(f *fixture) {
		f.respond(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
	}
}

// forUsers returns an injection of a server that responds with the error to all users except
// kube-aggregator, to which a server needs no SubjectAccessReview.
func forUsers(text string) func(*fixture) {
	return func(f *fixture) {
		healthy := f.healthy()
		f.respond(func(w http.ResponseWriter, req *http.Request) {
			if user := req.Header.Get("X-Remote-User"); user == "system:kube-aggregator" || user == "system:aggregator" {
				healthy.ServeHTTP(w, req)
				return
			}
			http.Error(w, "Internal Server Error: "+text, http.StatusInternalServerError)
		})
	}
}
