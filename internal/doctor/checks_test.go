// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/x509"
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster/clustertest"
)

const (
	widgets    = "v1.example.com"
	serverAuth = x509.ExtKeyUsageServerAuth
)

// broken returns facts with an APIService that is not available for the reason.
func broken(t *testing.T, reason, message string, names ...string) *Facts {
	t.Helper()
	f := &Facts{Now: clustertest.Now, Backends: map[certs.Service]*Backend{clustertest.Service: {}}}
	for _, name := range names {
		a := clustertest.APIService(name, clustertest.NewCA(t, "ca", serverAuth).CertPEM)
		a.Status.Conditions[0].Status = apiregistrationv1.ConditionFalse
		a.Status.Conditions[0].Reason, a.Status.Conditions[0].Message = reason, message
		f.APIServices = append(f.APIServices, a)
	}
	f.All = f.APIServices
	return f
}

var disallowed = []LogLine{{"demo/a", "server", "x509: subject with cn=a is not in the allowed list"}}

var untrusting = []LogLine{{"demo/a", "server", `configmaps "extension-apiserver-authentication" is forbidden: ` +
	`User "system:serviceaccount:demo:a" cannot get resource "configmaps"`}}

// attempts sets the errors of connections from pods to the Service and to its endpoint.
func attempts(service, endpoint string) func(*Facts) {
	return func(f *Facts) {
		b := f.Backends[clustertest.Service]
		b.Service, b.SlicesRead = &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.9",
			Ports: []corev1.ServicePort{{Port: portOf(f.APIServices[0])}}}}, true
		b.Slices = []discoveryv1.EndpointSlice{{Ports: []discoveryv1.EndpointPort{{Port: new(int32(8443))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.5"}}}}}
		f.Attempts = f.targets()
		for i := range f.Attempts {
			f.Attempts[i].Error = service
			if f.Attempts[i].Address == "10.244.0.5:8443" {
				f.Attempts[i].Error = endpoint
			}
		}
	}
}

func TestChecks(t *testing.T) {
	const noService = `service/widgets in "demo" is not present`
	for name, tc := range map[string]struct {
		change func(*Facts)
		reason string
		text   string
		want   string // the root causes, and the findings that they explain
	}{
		"unknown reason": {reason: "New", text: "something else", want: "A01"},
		"by the message, if the Service could not be read": {reason: "ServiceNotFound", text: noService, want: "S01 > A01"},
		"the Service exists again": {reason: "ServiceNotFound", text: noService, want: "A01", change: func(f *Facts) {
			f.Backends[clustertest.Service].Service = &corev1.Service{}
			f.Backends[clustertest.Service].SlicesRead = true
			f.Backends[clustertest.Service].Service.Spec.Type = corev1.ServiceTypeExternalName
		}},
		"the CA has expired": {reason: "FailedDiscoveryCheck", text: "x509: certificate has expired or is not yet valid: a",
			want: "K04 > A01 C07", change: func(f *Facts) { f.Now = f.Now.Add(2 * certs.CALifetime) }},
		"a namespace is stuck": {reason: "FailedDiscoveryCheck", text: "connect: connection refused",
			want: "S06 > A01 N01", change: func(f *Facts) {
				f.Terminating = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "a"},
					Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{{
						Type: corev1.NamespaceDeletionDiscoveryFailure, Status: corev1.ConditionTrue,
						Message: "unable to retrieve the complete list of server APIs: example.com/v1: down"}}}}}
			}},
		"a permission is missing": {reason: "FailedDiscoveryCheck", text: "bad status from https://a: 401",
			want: "R01 > D03 A01", change: func(f *Facts) {
				f.Accounts = []Account{{Namespace: "demo", Name: "a", APIServices: []string{widgets},
					Denied: permissions[:1]}}
			}},
		"a log shows why": {reason: "FailedDiscoveryCheck", text: "bad status from https://a: 401",
			want: "P01 > D03 A01", change: func(f *Facts) { f.Backends[clustertest.Service].Logs = disallowed }},
		"cert-manager writes no caBundle": {reason: "FailedDiscoveryCheck", text: "connect: connection refused",
			want: "S06 > A01; K16 > K02 A01", change: func(f *Facts) {
				f.APIServices[0].Annotations = map[string]string{injectFrom: "demo/serving"}
				f.APIServices[0].Spec.CABundle = nil
			}},
		"cert-manager writes the caBundle of an available API": {want: "K04", change: func(f *Facts) {
			f.APIServices[0].Annotations = map[string]string{injectFrom: "demo/serving"}
			f.APIServices[0].Status.Conditions[0].Status = apiregistrationv1.ConditionTrue
			f.Now = f.Now.Add(2 * certs.CALifetime)
		}},
		"a log shows a permission that is granted since": {reason: "FailedDiscoveryCheck",
			text: "bad status from https://a: 401", want: "D03 > A01", change: func(f *Facts) {
				f.Backends[clustertest.Service].Logs = untrusting
				f.Accounts = []Account{{Namespace: "demo", Name: "a", Reviewed: true}}
			}},
		"a log shows a permission that was not reviewed": {reason: "FailedDiscoveryCheck",
			text: "bad status from https://a: 401", want: "R01 > D03 A01", change: func(f *Facts) {
				f.Backends[clustertest.Service].Logs = untrusting
				f.Accounts = []Account{{Namespace: "demo", Name: "a"}}
			}},
		"a log shows a problem without a symptom": {reason: "FailedDiscoveryCheck", text: "connect: connection refused",
			want: "S06 > A01", change: func(f *Facts) { f.Backends[clustertest.Service].Logs = disallowed }},
		"lost packets": {reason: "FailedDiscoveryCheck",
			text: "net/http: request canceled while waiting for connection", want: "S11 > A01"},
		"no konnectivity server": {reason: "FailedDiscoveryCheck",
			text: "net/http: request canceled while waiting for connection", want: "S17 > A01 S11",
			change: func(f *Facts) { f.EgressFailures = 1 }},
		"no konnectivity server, later": {reason: "FailedDiscoveryCheck", text: "context deadline exceeded",
			want: "S17 > A01", change: func(f *Facts) { f.EgressFailures = 1 }},
		"konnectivity fails, but not for this API": {reason: "FailedDiscoveryCheck", text: "connect: connection refused",
			want: "S06 > A01", change: func(f *Facts) { f.EgressFailures = 1 }},
		"pods connect to the Service": {reason: "FailedDiscoveryCheck", text: "connect: connection refused",
			want: "S18 > S06 A01", change: attempts("", "")},
		"pods connect to the endpoints only": {reason: "FailedDiscoveryCheck", text: "connect: connection refused",
			want: "S19 > S06 A01", change: attempts("refused", "")},
		"pods connect to nothing": {reason: "FailedDiscoveryCheck", text: "connect: connection refused",
			want: "S06 > A01", change: attempts("refused", "refused")},
		"pods connect, and the server responds with an error": {reason: "FailedDiscoveryCheck",
			text: "bad status from https://a: 401", want: "D03 > A01", change: attempts("", "")},
		"of another API": {reason: "FailedDiscoveryCheck", text: "bad status from https://a: 401",
			want: "D03 > A01", change: func(f *Facts) {
				f.Accounts = []Account{{Namespace: "demo", Name: "a", APIServices: []string{"v1.other"},
					Denied: permissions[:1]}}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			f := broken(t, tc.reason, tc.text, widgets)
			if tc.change != nil {
				tc.change(f)
			}
			var causes []string
			for _, c := range NewReport(f).RootCauses {
				text := c.ID
				for i, s := range c.Explains {
					if i == 0 {
						text += " >"
					}
					text += " " + s.ID
				}
				causes = append(causes, text)
			}
			if diff := cmp.Diff(tc.want, strings.Join(causes, "; ")); diff != "" {
				t.Errorf("root causes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMerged: versions of one API have one finding about their Service.
func TestMerged(t *testing.T) {
	f := broken(t, "ServiceNotFound", "", widgets, "v2.example.com")
	f.Backends[clustertest.Service].NotFound = true
	r := NewReport(f)
	if len(r.RootCauses) != 1 || len(r.RootCauses[0].APIServices) != 2 || len(r.RootCauses[0].Explains) != 2 {
		t.Errorf("got %+v, want one root cause with two APIServices that explains two findings", r.RootCauses)
	}
}

// TestRotation: an expired CA beside a valid one is a warning.
func TestRotation(t *testing.T) {
	f := broken(t, "", "", widgets)
	f.APIServices[0].Status.Conditions[0].Status = apiregistrationv1.ConditionTrue
	f.Now = clustertest.Now.Add(certs.CALifetime + time.Hour)
	newer, err := certs.NewCA(certs.CAOptions{Name: "ca", Usage: serverAuth, Now: func() time.Time { return f.Now }})
	if err != nil {
		t.Fatal(err)
	}
	f.APIServices[0].Spec.CABundle = append(f.APIServices[0].Spec.CABundle, newer.CertPEM...)
	r := NewReport(f)
	if len(r.RootCauses) != 1 || r.RootCauses[0].ID != "K04" || r.RootCauses[0].Severity != "warning" {
		t.Errorf("got %+v, want the warning K04", r.RootCauses)
	}
}

func TestWrite(t *testing.T) {
	f := broken(t, "FailedDiscoveryCheck", "x509: certificate has expired or is not yet valid: a", widgets)
	f.Unread = []Unread{{Layer: "admission", What: "list validatingwebhookconfigurations", Reason: "forbidden",
		Forbidden: true}}
	f.Kubernetes = "v1.37.2"
	r := NewReport(f)
	for _, format := range Formats {
		var out strings.Builder
		if err := r.Write(&out, format, false); err != nil {
			t.Fatal(err)
		}
		var err error
		var any any
		switch format {
		case "json":
			err = json.Unmarshal([]byte(out.String()), &any)
		case "yaml":
			err = yaml.Unmarshal([]byte(out.String()), &any)
		case "junit":
			var suite junitSuite
			err = xml.Unmarshal([]byte(out.String()), &suite)
			if suite.Failures != 1 || suite.Skipped != 1 || suite.Tests != len(suite.Cases) {
				t.Errorf("got %+v, want one failure and one skipped case", suite)
			}
		}
		if err != nil || !strings.Contains(out.String(), "C07") {
			t.Errorf("%s: got %v and\n%s", format, err, out.String())
		}
	}
	var quiet strings.Builder
	if err := r.Write(&quiet, "text", true); err != nil {
		t.Fatal(err)
	}
	want := `C07 error: The serving certificate has expired, or is not valid yet
  object    Service demo/widgets
  evidence  condition Available is False (FailedDiscoveryCheck): x509: certificate has expired or is not yet valid: a
  effect    kube-apiserver rejects the server, and responds with 503.
  fix       Renew the certificate for the name widgets.demo.svc. Restart a server that reads it only at its start.
              kubectl rollout restart --namespace demo deployment/DEPLOYMENT
  explains  A01 APIService v1.example.com: The APIService is not available
`
	if diff := cmp.Diff(want, quiet.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	if err := r.Write(&quiet, "html", false); err == nil {
		t.Error("format html: got no error")
	}
}
