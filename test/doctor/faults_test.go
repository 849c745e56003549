// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	k8sresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
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
	// smoke faults are also injected with -short.
	smoke bool
}

var faults = []fault{
	{name: "no Service", smoke: true, id: "S01", explains: []string{"A01", "D07"}, repaired: true,
		inject: func(f *fixture) { f.registerAt(443, nil) }},
	{name: "another port", smoke: true, id: "S02", explains: []string{"A01"}, repaired: true, inject: func(f *fixture) {
		f.service(clusterIP(8443, nil))
		f.slice("https", ready)
		f.registerAt(443, nil)
	}},
	{name: "another port name", id: "S03", explains: []string{"K12", "A01"}, repaired: true, inject: func(f *fixture) {
		f.service(clusterIP(443, nil))
		f.slice("http", ready)
		f.registerAt(443, nil)
	}},
	{name: "targetPort of no container", id: "S08", explains: []string{"K12", "A01"}, repaired: true,
		inject: func(f *fixture) {
			f.must(shared.WaitControllers(f.Context()))
			f.pod(running, func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "api", ContainerPort: 6443}}
			})
			spec := clusterIP(443, selector)
			spec.Ports[0].TargetPort = intstr.FromString("https")
			f.service(spec)
			f.registerAt(443, nil)
		}},
	{name: "selector without pods", id: "S04", explains: []string{"K12", "A01"}, inject: func(f *fixture) {
		f.service(clusterIP(443, map[string]string{"app": "none"}))
		f.registerAt(443, nil)
	}},
	{name: "crashing pod", smoke: true, id: "S05", explains: []string{"K12", "A01"},
		inject: unready(waiting("CrashLoopBackOff"))},
	{name: "image that does not exist", id: "S15", explains: []string{"K12", "A01"},
		inject: unready(waiting("ImagePullBackOff"))},
	{name: "no room on a node", id: "S15", explains: []string{"K12", "A01"}, inject: unready(corev1.PodStatus{
		Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available: 3 Insufficient memory."}}})},
	{name: "no endpoint is ready", id: "K12", explains: []string{"A01"}, inject: func(f *fixture) {
		f.service(clusterIP(443, nil))
		f.slice("https", discoveryv1.EndpointConditions{Ready: new(false)})
		f.registerAt(443, nil)
	}},
	{name: "terminating endpoints", id: "S09", explains: []string{"K12", "A01"}, inject: func(f *fixture) {
		f.service(clusterIP(443, nil))
		f.slice("https", discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)})
		f.registerAt(443, nil)
	}},
	{name: "no EndpointSlices", id: "K12", explains: []string{"A01"}, inject: func(f *fixture) {
		f.service(clusterIP(443, nil))
		f.registerAt(443, nil)
	}},
	{name: "server down", smoke: true, id: "S06", explains: []string{"A01"}, inject: (*fixture).registerDown},
	{name: "name that does not resolve", id: "S07", explains: []string{"A01"}, inject: func(f *fixture) {
		f.service(corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "nowhere.invalid"})
		f.registerAt(443, nil)
	}},
	{name: "lost packets", id: "S11", explains: []string{"A01"}, inject: func(f *fixture) {
		f.register(silent(f.T), nil)
	}},
	{name: "plain HTTP", smoke: true, id: "S12", explains: []string{"A01"}, inject: func(f *fixture) {
		server := httptest.NewServer(f.healthy())
		f.Cleanup(server.Close)
		f.register(portOf(f.T, server.Listener), nil)
	}},
	{name: "closed connections", id: "S13", explains: []string{"A01"}, inject: func(f *fixture) {
		f.register(listen(f.T, func(conn net.Conn) { _ = conn.Close() }), nil)
	}},

	{name: "insecure", smoke: true, id: "K01", repaired: true, inject: func(f *fixture) {
		f.register(serve(f.T, f.certificate(nil), f.healthy()), func(s *apiregistrationv1.APIServiceSpec) {
			s.CABundle, s.InsecureSkipTLSVerify = nil, true
		})
	}},
	{name: "empty caBundle", id: "K02", explains: []string{"K03", "A01"}, repaired: true, inject: func(f *fixture) {
		f.register(serve(f.T, f.certificate(nil), f.healthy()), func(s *apiregistrationv1.APIServiceSpec) {
			s.CABundle = nil
		})
	}},
	{name: "another CA", smoke: true, id: "K03", explains: []string{"A01"}, repaired: true, inject: func(f *fixture) {
		f.register(serve(f.T, f.certificate(nil), f.healthy()), func(s *apiregistrationv1.APIServiceSpec) {
			s.CABundle = newAuthority(f.T, nil).pem()
		})
	}},
	{name: "CA that cert-manager does not write", id: "K16", explains: []string{"K02", "K03", "A01"},
		inject: func(f *fixture) {
			f.register(serve(f.T, f.certificate(nil), f.healthy()), func(s *apiregistrationv1.APIServiceSpec) {
				s.CABundle = nil
			})
			f.injected()
		}},
	{name: "CA that was created again", smoke: true, id: "K14", explains: []string{"A01"},
		inject: func(f *fixture) {
			again := newAuthority(f.T, func(c *x509.Certificate) { c.Subject = f.ca.certificate.Subject })
			f.register(serve(f.T, f.certificate(nil), f.healthy()), func(s *apiregistrationv1.APIServiceSpec) {
				s.CABundle = again.pem()
			})
		}},
	{name: "expired CA", id: "K04", explains: []string{"C07", "A01"}, inject: withCA(func(c *x509.Certificate) {
		c.NotAfter = time.Now().Add(-time.Hour)
	})},
	{name: "CA of the future", id: "K04", explains: []string{"C07", "A01"}, inject: withCA(func(c *x509.Certificate) {
		c.NotBefore = time.Now().Add(time.Hour)
	})},
	{name: "CA that expires soon", id: "K15", inject: withCA(func(c *x509.Certificate) {
		c.NotAfter = time.Now().Add(48 * time.Hour)
	})},
	{name: "CA without CA:TRUE", id: "C12", explains: []string{"A01"}, inject: withCA(func(c *x509.Certificate) {
		c.IsCA = false
	})},
	{name: "CA for other names", id: "C14", explains: []string{"A01"}, inject: withCA(func(c *x509.Certificate) {
		c.PermittedDNSDomainsCritical, c.PermittedDNSDomains = true, []string{"other.svc"}
	})},
	{name: "expired certificate", smoke: true, id: "C07", explains: []string{"A01"}, inject: func(f *fixture) {
		f.registerWith(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) })
	}},
	{name: "certificate of the future", id: "C07", explains: []string{"A01"}, inject: func(f *fixture) {
		f.registerWith(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) })
	}},
	{name: "certificate for an address", id: "C04", explains: []string{"A01"}, inject: func(f *fixture) {
		f.registerWith(func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = nil, []net.IP{net.IPv4(127, 0, 0, 1)} })
	}},
	{name: "certificate for another namespace", id: "C04", explains: []string{"A01"}, inject: func(f *fixture) {
		f.registerWith(func(c *x509.Certificate) { c.DNSNames = []string{serviceName + ".other.svc", "*.other.svc"} })
	}},
	{name: "certificate for another name", smoke: true, id: "C04", explains: []string{"A01"}, inject: func(f *fixture) {
		f.registerWith(func(c *x509.Certificate) { c.DNSNames = []string{"localhost"} })
	}},
	{name: "certificate with a common name only", id: "C04", explains: []string{"A01"}, inject: func(f *fixture) {
		f.registerWith(func(c *x509.Certificate) { c.DNSNames = nil })
	}},
	{name: "client certificate", id: "C02", explains: []string{"A01"}, inject: func(f *fixture) {
		f.registerWith(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
	}},

	{name: "client CA of the server", smoke: true, id: "P11", explains: []string{"A01"}, inject: func(f *fixture) {
		clients := x509.NewCertPool()
		clients.AddCert(newAuthority(f.T, nil).certificate)
		f.register(serveTLS(f.T, &tls.Config{Certificates: []tls.Certificate{f.certificate(nil)}, ClientCAs: clients,
			ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}, f.healthy()), nil)
	}},

	{name: "no response to discovery", id: "D01", explains: []string{"A01"}, inject: func(f *fixture) {
		f.respond(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
	}},
	{name: "version not served", smoke: true, id: "D02", explains: []string{"A01"}, repaired: true,
		inject: status(http.StatusNotFound)},
	{name: "front proxy not trusted", id: "D03", explains: []string{"A01"}, inject: status(http.StatusUnauthorized)},
	{name: "discovery not authorized", id: "D03", explains: []string{"A01"}, inject: status(http.StatusForbidden)},
	{name: "redirect", smoke: true, id: "D04", explains: []string{"A01"}, inject: func(f *fixture) {
		f.respond(func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, req.URL.Path+"/", http.StatusMovedPermanently)
		})
	}},
	{name: "discovery near the limit", id: "D08", inject: func(f *fixture) {
		healthy := f.healthy()
		f.respond(func(w http.ResponseWriter, req *http.Request) {
			select {
			case <-time.After(3 * time.Second):
			case <-req.Context().Done():
			}
			healthy.ServeHTTP(w, req)
		})
	}},
	{name: "clock of the server", id: "D09", inject: func(f *fixture) {
		healthy := f.healthy()
		f.respond(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
			healthy.ServeHTTP(w, req)
		})
	}},
	{name: "internal error", id: "D05", explains: []string{"A01"}, inject: status(http.StatusInternalServerError)},
	{name: "unavailable upstream", id: "D05", explains: []string{"A01"}, inject: status(http.StatusServiceUnavailable)},
	{name: "page instead of discovery", id: "K08", explains: []string{"D07"}, inject: func(f *fixture) {
		f.respond(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>Welcome</html>") })
	}},
	{name: "error for users", id: "K08", inject: forUsers("database is down")},
	{name: "denied SubjectAccessReview", smoke: true, id: "R02", inject: forUsers(
		`subjectaccessreviews.authorization.k8s.io is forbidden: User "system:serviceaccount:a:b" cannot create ` +
			`resource "subjectaccessreviews"`)},
	{name: "no resources", smoke: true, id: "D06", repaired: true, inject: func(f *fixture) {
		f.register(serve(f.T, f.certificate(nil), api(f.group, "", schemas)), nil)
	}},
	// kube-controller-manager must have counted the quota, which it does without the API.
	{name: "resource without watch", id: "D11", explains: []string{"N03"}, later: 10 * time.Minute,
		inject: func(f *fixture) {
			f.must(shared.WaitControllers(f.Context()))
			f.register(serve(f.T, f.certificate(nil), api(f.group, resource, schemas, "create", "list", "delete")), nil)
			limit := corev1.ResourceList{corev1.ResourceName("count/" + resource + "." + f.group): k8sresource.MustParse("5")}
			_, err := f.client.CoreV1().ResourceQuotas(f.namespace).Create(f.Context(), &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Name: "limit"}, Spec: corev1.ResourceQuotaSpec{Hard: limit}}, metav1.CreateOptions{})
			f.must(err)
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
	{name: "priority of versions", smoke: true, id: "A04", repaired: true, inject: func(f *fixture) {
		port := serve(f.T, f.certificate(nil), f.healthy())
		f.register(port, nil)
		f.registerVersion("v1beta1", port, func(s *apiregistrationv1.APIServiceSpec) { s.VersionPriority = 20 })
	}},
	{name: "owner in a namespace", id: "A05", inject: func(f *fixture) {
		f.register(serve(f.T, f.certificate(nil), f.healthy()), nil)
		owner, err := f.client.CoreV1().ConfigMaps(f.namespace).Get(f.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		f.must(err)
		_, err = f.apiServices.Patch(f.Context(), "v1."+f.group, types.MergePatchType, fmt.Appendf(nil,
			`{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": %q, "uid": %q}]}}`,
			owner.Name, owner.UID), metav1.PatchOptions{})
		f.must(err)
	}},
	{name: "webhook without a Service", smoke: true, id: "W01", inject: func(f *fixture) { f.webhook("gone", 443, nil) }},
	{name: "webhook for a port that the Service lacks", id: "W01", inject: func(f *fixture) {
		f.webhookService()
		f.webhook("hook", 8443, f.ca.pem())
	}},
	{name: "webhook without a caBundle", id: "W02", inject: func(f *fixture) {
		f.webhookService()
		f.webhook("hook", 443, nil)
	}},
	{name: "webhook with an expired CA", id: "W02", inject: func(f *fixture) {
		f.webhookService()
		f.webhook("hook", 443, newAuthority(f.T, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }).pem())
	}},
	{name: "policy with parameters of no kind", id: "W03", inject: func(f *fixture) {
		f.register(serve(f.T, f.certificate(nil), f.healthy()), nil)
		f.apply(fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy,
metadata: {name: %[1]s}, spec: {paramKind: {apiVersion: gone.example.com/v1, kind: Limit}, matchConstraints: {
resourceRules: [{apiGroups: [%[1]s], apiVersions: ["*"], operations: [CREATE], resources: ["*"]}]},
validations: [{expression: "true"}]}}`, f.group))
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

	{name: "namespace of the server in Terminating", id: "N02", explains: []string{"S01", "A01", "N01"},
		inject: func(f *fixture) {
			f.must(shared.WaitControllers(f.Context()))
			f.registerDown()
			f.must(f.client.CoreV1().Namespaces().Delete(f.Context(), f.namespace, metav1.DeleteOptions{}))
		}},

	{name: "log: trusted CA not readable", smoke: true, id: "R01", explains: []string{"S05", "K12", "A01"}, repaired: true,
		inject: crashing(trustForbidden)},
	{name: "log: kube-apiserver not reachable", id: "D10", explains: []string{"S05", "K12", "A01"},
		inject: crashing(trustUnreachable)},
	{name: "log: aggregation layer not configured", id: "P04", explains: []string{"S05", "K12", "A01"},
		inject: crashing(noTrust)},
	{name: "log: another key", id: "C06", explains: []string{"S05", "K12", "A01"}, inject: crashing(otherKey)},
	{name: "log: policies not readable", smoke: true, id: "R04", explains: []string{"S05", "K12", "A01"},
		inject: crashing(policyForbidden)},
	{name: "log: policies not served", id: "D12", explains: []string{"S05", "K12", "A01"},
		inject: crashing(policyNotServed)},
	{name: "log: etcd not reachable", id: "E01", explains: []string{"S05", "K12", "A01"},
		inject: crashing(etcdUnreachable)},

	// The server reviews its permissions each minute.
	{name: "no RoleBinding", id: "R01", explains: []string{"R03"}, repaired: true,
		inject: func(f *fixture) { f.revokeReader() }},
	{name: "front proxy not trusted without a RoleBinding", smoke: true, id: "R01", explains: []string{"D03", "A01"},
		repaired: true, inject: func(f *fixture) {
			f.pod(running)
			f.respond(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
		}},
	{name: "RoleBinding in the wrong namespace", smoke: true, id: "R01", inject: func(f *fixture) {
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
	{name: "permission of the server", id: "R03", inject: func(f *fixture) {
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

var ready = discoveryv1.EndpointConditions{Ready: new(true)}

// unready returns an injection of a Service with a pod in the status.
func unready(status corev1.PodStatus) func(*fixture) {
	return func(f *fixture) {
		f.pod(status)
		f.service(clusterIP(443, selector))
		f.registerAt(443, nil)
	}
}

// withCA returns an injection of a CA with a change.
func withCA(change func(*x509.Certificate)) func(*fixture) {
	return func(f *fixture) {
		f.ca = newAuthority(f.T, change)
		f.register(serve(f.T, f.certificate(nil), f.healthy()), nil)
	}
}

// webhook registers a healthy API, and a webhook for it that is served by a Service.
func (f *fixture) webhook(service string, port int, caBundle []byte) {
	f.register(serve(f.T, f.certificate(nil), f.healthy()), nil)
	f.apply(fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration,
metadata: {name: %[1]s}, webhooks: [{name: check.%[1]s, admissionReviewVersions: [v1], sideEffects: None,
clientConfig: {service: {namespace: %[2]s, name: %[3]s, port: %[4]d}, caBundle: %[5]q}, rules: [{apiGroups: [%[1]s],
apiVersions: ["*"], operations: [CREATE], resources: ["*"]}]}]}`, f.group, f.namespace, service, port,
		base64.StdEncoding.EncodeToString(caBundle)))
}

// webhookService creates a Service with the port 443 and a ready endpoint.
func (f *fixture) webhookService() {
	_, err := f.client.CoreV1().Services(f.namespace).Create(f.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "hook"}, Spec: clusterIP(443, nil)}, metav1.CreateOptions{})
	f.must(err)
	f.sliceOf("hook", "https", ready)
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
