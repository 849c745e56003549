// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/clustertest"
)

// TestPreflightOwners: a rotation does not begin if an injector would revert it or its
// second step would be refused. A rotation that changes no caBundle emits a note about the
// owner.
func TestPreflightOwners(t *testing.T) {
	annotated := func(name string) func(*apiregistrationv1.APIService) {
		return func(a *apiregistrationv1.APIService) { a.Annotations = map[string]string{name: "demo/widgets"} }
	}
	owned := func(managers ...string) func(*apiregistrationv1.APIService) {
		return func(a *apiregistrationv1.APIService) {
			for _, m := range managers {
				*a = clustertest.OwnedBy(*a, m, metav1.ManagedFieldsOperationApply)
			}
		}
	}
	const injector, other = "cert-manager owns the caBundle (annotation cert-manager.io/inject-",
		`found "kubectl", so nothing was written; remove caBundle from the manifests`
	for name, tc := range map[string]struct {
		rotation string
		register func(*apiregistrationv1.APIService)
		refused  string
		note     string
	}{
		"serving, injected":              {Serving, annotated("cert-manager.io/inject-ca-from"), injector, ""},
		"serving-ca, injected":           {ServingCA, annotated("cert-manager.io/inject-ca-from-secret"), injector, ""},
		"serving-ca, another annotation": {ServingCA, annotated("cert-manager.io/inject-apiserver-ca"), injector, ""},
		"serving-ca, OpenShift": {ServingCA, annotated("service.beta.openshift.io/inject-cabundle"),
			"the service-ca operator owns the caBundle (annotation service.beta.openshift.io/inject-cabundle)", ""},
		"serving, of another": {Serving, owned("kubectl"), "",
			`"kubectl" owns the caBundle of APIService v1.widgets, which serving does not change`},
		"serving-ca, of another": {ServingCA, owned("kubectl"), other, ""},
		"serving-ca, shared":     {ServingCA, owned(cluster.FieldManager, "kubectl"), other, ""},
		"serving-ca, ours":       {ServingCA, owned(cluster.FieldManager), "", ""},
		"proxy-client":           {ProxyClient, annotated("cert-manager.io/inject-ca-from"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.register = tc.register
			opts := f.options(tc.rotation)
			var notes []string
			opts.Progress = func(e Event) {
				if e.Type == EventNote {
					notes = append(notes, e.Message)
				}
			}
			before := f.world()
			_, err := Run(t.Context(), opts)
			if _, blocked := errors.AsType[*BlockedError](err); blocked || (err == nil) != (tc.refused == "") ||
				err != nil && !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("got %v, want it refused with %q", err, tc.refused)
			}
			if after := f.world(); tc.refused != "" && after != before {
				t.Errorf("something has changed; before:\n%s\nafter:\n%s", before, after)
			}
			if got := strings.Join(notes, "\n"); (got == "") != (tc.note == "") || !strings.Contains(got, tc.note) {
				t.Errorf("got the notes %q, want %q", got, tc.note)
			}
		})
	}
}

// TestInsecureMeanwhile: an APIService that becomes insecure during a rotation of its CA does
// not prevent an abort.
func TestInsecureMeanwhile(t *testing.T) {
	f := newFake(t)
	b := f.before()
	f.runTo(ServingCA, "switch", EventObserved)
	f.register = func(a *apiregistrationv1.APIService) {
		if a.Name == "v2.widgets" {
			a.Spec.InsecureSkipTLSVerify, a.Spec.CABundle = true, nil
		}
	}
	f.mustAbort(ServingCA)
	f.checkAborted(b)
}
