// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/clustertest"
	"example.com/extension-apiserver/internal/frontproxy"
)

// fixture is a cluster with two versions, two endpoints and no faults.
type fixture struct {
	*observed
	t                     *testing.T
	servingCA, users, fpc *certs.CA
	leaf                  *certs.KeyPair
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{
		t: t, servingCA: clustertest.NewCA(t, "serving-ca", x509.ExtKeyUsageServerAuth),
		users: clustertest.NewCA(t, "users-ca", x509.ExtKeyUsageClientAuth),
		fpc:   clustertest.NewCA(t, "front-proxy-ca", x509.ExtKeyUsageClientAuth),
	}
	f.leaf = clustertest.NewServing(t, f.servingCA, "widgets.demo.svc")
	bundle := certs.Bundle{f.servingCA.Certificate}
	f.observed = &observed{
		service: clustertest.Service, now: clustertest.Now, served: map[string][]cluster.Served{},
		apiServices: []apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com", bundle.PEM()),
			clustertest.APIService("v2.g.example.com", bundle.PEM())},
		endpoints: []cluster.Endpoint{{Address: "10.0.0.1:6443", Ready: true, Pod: "widgets-1"},
			{Address: "10.0.0.2:6443", Ready: true, Pod: "widgets-2"}},
		stored: []stored{{"pki/serving", certs.Bundle{f.leaf.Certificate}, bundle}},
		secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "serving"}},
		pods:   []corev1.Pod{podWithSecret("serving", "")},
		proxy:  clustertest.NewProxy(t, f.fpc, certs.FrontProxyUser),
		trust: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: frontproxy.Namespace,
			Name: frontproxy.ConfigMapName}, Data: map[string]string{
			frontproxy.ClientCAKey: string(f.users.CertPEM), frontproxy.CAKey: string(f.fpc.CertPEM),
			frontproxy.AllowedNamesKey: `["front-proxy-client"]`, frontproxy.UsernameHeadersKey: `["X-Remote-User"]`,
		}},
	}
	for _, a := range f.apiServices {
		for _, e := range f.endpoints {
			f.served[a.Name] = append(f.served[a.Name], cluster.Served{Endpoint: e, Leaf: f.leaf.Certificate})
		}
		f.responses = append(f.responses, response{"https://10.0.0.9:6443", a, nil})
	}
	for _, e := range f.endpoints {
		f.probes = append(f.probes, probe{e, cluster.Accepted, nil})
	}
	return f
}

func podWithSecret(secret, subPath string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "widgets-1"},
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{{Name: "pki",
				VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}},
			Containers: []corev1.Container{{Name: "server",
				VolumeMounts: []corev1.VolumeMount{{Name: "pki", MountPath: "/pki/tls.crt", SubPath: subPath}}}},
		},
	}
}

// bundle sets the caBundle of v1.
func (f *fixture) bundle(data string) { f.apiServices[0].Spec.CABundle = []byte(data) }

// TestFindings: each fault has its finding; a cluster without faults has none.
func TestFindings(t *testing.T) {
	seen := map[string]bool{}
	for i, tc := range faults {
		seen[tc.id] = true
		t.Run(fmt.Sprintf("%s/%d", tc.id, i), func(t *testing.T) {
			f := newFixture(t)
			if r := f.report(); len(r.Findings) != 0 || r.Failed(true) || r.Summary.Checked != 9 {
				t.Fatalf("without a fault: got %+v, want no finding and 9 things checked", r)
			}
			tc.fault(f)
			r := f.report()
			if !slices.ContainsFunc(r.Findings, func(f catalogue.Finding) bool {
				return f.ID == tc.id && f.Severity == tc.severity && f.Object == tc.object &&
					strings.Contains(f.Evidence, tc.evidence) && f.Fix != ""
			}) {
				t.Errorf("want %s %s %s with %q, got %+v", tc.severity, tc.id, tc.object, tc.evidence, r.Findings)
			}
			if !slices.ContainsFunc(r.Checked, func(c verify.Checked) bool {
				return c.Object == tc.object &&
					c.Errors+c.Warnings+c.Infos > 0
			}) {
				t.Errorf("want the finding counted with %s, got %+v", tc.object, r.Checked)
			}
			if wantFailed := tc.severity == catalogue.Error; wantFailed && !r.Failed(false) || r.Failed(false) &&
				r.Summary.Errors == 0 {
				t.Errorf("got failed %t with %+v", r.Failed(false), r.Summary)
			}
		})
	}
	for _, c := range checks {
		if !seen[c.ID] {
			t.Errorf("no fault of this test shows %s", c.ID)
		}
	}
}

// TestInjectedCABundle: if an injector maintains a caBundle, no fix suggests writing it.
func TestInjectedCABundle(t *testing.T) {
	for _, fault := range faults {
		if fault.id != "K02" && fault.id != "K03" && fault.id != "K04" {
			continue
		}
		f := newFixture(t)
		fault.fault(f)
		for i := range f.apiServices {
			f.apiServices[i].Annotations = map[string]string{"cert-manager.io/inject-ca-from": "demo/widgets"}
		}
		for _, finding := range f.report().Findings {
			if finding.ID == fault.id && !strings.HasPrefix(finding.Fix,
				"cert-manager owns the caBundle (annotation cert-manager.io/inject-ca-from): ") {
				t.Errorf("%s: got the fix %q, want cert-manager named", fault.id, finding.Fix)
			}
		}
	}
}

// TestRules: an ID has one meaning, in files and in clusters, and findings have the severities
// of their rules.
func TestRules(t *testing.T) {
	ids := map[string]bool{}
	for _, r := range append(verify.Rules(), Rules()...) {
		if ids[r.ID] {
			t.Errorf("%s occurs twice", r.ID)
		}
		ids[r.ID] = true
		if r.Meaning == "" || r.Fix == "" || len(r.Severities) == 0 {
			t.Errorf("%s lacks its meaning, fix or severities", r.ID)
		}
	}
	for _, tc := range faults {
		i := slices.IndexFunc(checks, func(c catalogue.Check[*observed]) bool { return c.ID == tc.id })
		if i < 0 || !slices.Contains(checks[i].Severities, tc.severity) {
			t.Errorf("%s: severity %s is not in its rule", tc.id, tc.severity)
		}
	}
}

// TestCheckRejectsInvalidOptions: invalid options are reported before any request is sent.
func TestCheckRejectsInvalidOptions(t *testing.T) {
	_, err := Check(context.Background(), &cluster.Cluster{}, Options{Service: certs.Service{Name: "Widgets"}})
	if got := len(certs.Flatten(err)); got != 2 {
		t.Errorf("got %v, want two invalid options", err)
	}
}
