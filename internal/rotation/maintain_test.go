// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/apply"
	"example.com/extension-apiserver/internal/cluster/clustertest"
)

var maintained = Options{Rotation: Serving, Service: clustertest.Service, Secret: "s", CASecret: "ca", Hold: time.Hour}

func emptyCASecret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: clustertest.Service.Namespace, Name: "ca"},
		Type: corev1.SecretTypeOpaque}
}

func secretData(t *testing.T, c apply.Client, name string) map[string][]byte {
	t.Helper()
	s, err := c.Core.CoreV1().Secrets(clustertest.Service.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s.Data
}

func caBundleOf(t *testing.T, c apply.Client) string {
	t.Helper()
	a, err := c.Aggregator.ApiregistrationV1().APIServices().Get(t.Context(), "v1.g.example.com", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(a.Spec.CABundle)
}

// writes lists the requests to the cluster, except for reads and those for the Lease.
func writes(c apply.Client) []string {
	var out []string
	for _, a := range c.Core.(*fake.Clientset).Actions() {
		if a.GetVerb() != "get" && a.GetVerb() != "list" && a.GetResource().Resource != "leases" {
			out = append(out, a.GetVerb()+" "+a.GetResource().Resource)
		}
	}
	return out
}

// TestMaintain: Maintain creates a CA in an empty Secret and a key pair of it for the Service,
// and APIServices trust the CA. A second run writes nothing. When the key pair is due, only that
// is renewed.
func TestMaintain(t *testing.T) {
	c := apply.Client{Cluster: clustertest.New([]apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com",
		nil)}, emptyCASecret())}
	if _, err := Maintain(t.Context(), c, maintained); err != nil {
		t.Fatal(err)
	}
	ca, pair := secretData(t, c, "ca"), secretData(t, c, "s")
	if _, err := certs.ParseCA(ca[certs.CertFile], ca[certs.KeyFile], c.Now); err != nil {
		t.Errorf("CA: %v", err)
	}
	if diff := cmp.Diff(string(ca[certs.CertFile]), string(pair[certs.BundleFile])); diff != "" ||
		caBundleOf(t, c) != string(ca[certs.CertFile]) {
		t.Errorf("ca.crt of the pair, and caBundle %q, want the CA (-want +got):\n%s", caBundleOf(t, c), diff)
	}
	if strings.Contains(string(pair[certs.KeyFile]), string(ca[certs.KeyFile])) {
		t.Error("the key of the CA is in the Secret of the pair")
	}
	// The CA is stored before anything trusts it.
	if diff := cmp.Diff([]string{"update secrets", "patch secrets", "patch secrets"}, writes(c)); diff != "" {
		t.Errorf("writes, the first patch being a dry run (-want +got):\n%s", diff)
	}

	before := len(writes(c))
	report, err := Maintain(t.Context(), c, maintained)
	if err != nil || len(writes(c)) != before ||
		did(report) != "unchanged Secret demo/ca, unchanged APIService v1.g.example.com, unchanged Secret demo/s" {
		t.Errorf("again: %+v, %v, %v; want all kept and nothing written", report, err, writes(c)[before:])
	}

	later := clustertest.Now.Add(61 * 24 * time.Hour)
	c.Now, c.Config.Transport = func() time.Time { return later }, clustertest.Clock(later)
	report, err = Maintain(t.Context(), c, maintained)
	if err != nil ||
		did(report) != "unchanged Secret demo/ca, unchanged APIService v1.g.example.com, replaced Secret demo/s" {
		t.Errorf("when the pair is due: %+v, %v; want it alone replaced", report, err)
	}
	if string(secretData(t, c, "s")[certs.CertFile]) == string(pair[certs.CertFile]) ||
		cmp.Diff(ca, secretData(t, c, "ca")) != "" {
		t.Error("when the pair is due: want another pair and the same CA")
	}
}

// TestMaintainConcurrentChange: Maintain does not overwrite a concurrent change by another client
// without the Lease.
func TestMaintainConcurrentChange(t *testing.T) {
	c := apply.Client{Cluster: clustertest.New([]apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com",
		nil)}, emptyCASecret())}
	core := c.Core.(*fake.Clientset)
	core.PrependReactor("update", "secrets", func(action k8stesting.Action) (bool, runtime.Object, error) {
		changed := emptyCASecret()
		changed.Data = map[string][]byte{certs.CertFile: []byte("of somebody else")}
		if err := core.Tracker().Update(action.GetResource(), changed, changed.Namespace); err != nil {
			return true, nil, err
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("secrets"), "ca", nil)
	})
	if _, err := Maintain(t.Context(), c, maintained); err == nil ||
		!strings.Contains(err.Error(), "Secret demo/ca: another client changed the Secret") {
		t.Errorf("got %v, want that the Secret changed", err)
	}
	if diff := cmp.Diff([]string{"update secrets"}, writes(c)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// TestMaintainNeedsManualAction: Maintain returns an error and changes nothing if manual action is
// required.
func TestMaintainNeedsManualAction(t *testing.T) {
	other := clustertest.NewCA(t, "other", x509.ExtKeyUsageServerAuth)
	withoutKey := emptyCASecret()
	withoutKey.Data = map[string][]byte{certs.CertFile: other.CertPEM}
	broken := emptyCASecret()
	broken.Data = map[string][]byte{certs.CertFile: []byte("x"), certs.KeyFile: []byte("y")}
	for name, tc := range map[string]struct {
		secret   *corev1.Secret
		caBundle []byte
		want     string
	}{
		"no Secret for the CA":           {nil, nil, "kubectl create secret generic ca --namespace demo"},
		"a trusted CA, lost":             {emptyCASecret(), other.CertPEM, "is not in key ca.crt of Secret demo/s: "},
		"a CA without its key":           {withoutKey, nil, "key tls.key of Secret demo/ca: "},
		"a certificate that is not a CA": {broken, nil, "key tls.crt of Secret demo/ca: "},
		"how to allow another CA": {broken, nil,
			`kubectl patch secret ca --namespace demo --type merge --patch '{"data":null}'`},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			if tc.secret != nil {
				objects = append(objects, tc.secret)
			}
			c := apply.Client{Cluster: clustertest.New([]apiregistrationv1.APIService{clustertest.APIService(
				"v1.g.example.com", tc.caBundle)}, objects...)}
			if _, err := Maintain(t.Context(), c, maintained); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			} else if strings.Contains(err.Error(), "/certgen-") || strings.Contains(err.Error(), "--allow-new-ca") {
				t.Errorf("got %v, which names the temporary directory or a flag that the command does not have", err)
			}
			if got := writes(c); len(got) > 0 {
				t.Errorf("wrote %v, want nothing", got)
			}
		})
	}
}

// TestMaintainWaits: Maintain first stores the Secrets, which the server needs, and then waits
// for the APIServices.
func TestMaintainWaits(t *testing.T) {
	o := maintained
	o.APIServices, o.Within = []string{"v1.g.example.com"}, time.Millisecond
	c := apply.Client{Cluster: clustertest.New(nil, emptyCASecret())}
	if _, err := Maintain(t.Context(), c, o); err == nil ||
		!strings.Contains(err.Error(), "missing: [v1.g.example.com]") {
		t.Errorf("got %v, want the missing APIService named", err)
	}
	if len(secretData(t, c, "s")) == 0 {
		t.Error("the pair was not stored before the wait")
	}
	c = apply.Client{Cluster: clustertest.New([]apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com",
		nil)}, emptyCASecret())}
	if _, err := Maintain(t.Context(), c, o); err != nil {
		t.Error(err)
	}
}

// TestMaintainRemoteCADue: Maintain reports a due CA whose key a signer has, but does not
// replace it.
func TestMaintainRemoteCADue(t *testing.T) {
	c := apply.Client{Cluster: clustertest.New([]apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com",
		nil)}, emptyCASecret())}
	if _, err := Maintain(t.Context(), c, maintained); err != nil {
		t.Fatal(err)
	}
	ca, err := certs.ParseCA(secretData(t, c, "ca")[certs.CertFile], secretData(t, c, "ca")[certs.KeyFile], c.Now)
	if err != nil {
		t.Fatal(err)
	}
	at := func(now time.Time) {
		c.Now, c.Config.Transport = func() time.Time { return now }, clustertest.Clock(now)
	}
	at(certs.RenewAt(ca.Certificate).Add(-time.Hour))
	if _, err := Maintain(t.Context(), c, maintained); err != nil { // to renew the key pair
		t.Fatal(err)
	}
	secrets := c.Secrets(clustertest.Service.Namespace)
	keyless, err := secrets.Get(t.Context(), "ca", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	delete(keyless.Data, certs.KeyFile)
	if _, err := secrets.Update(t.Context(), keyless, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	at(certs.RenewAt(ca.Certificate).Add(time.Hour))
	o := maintained
	o.Signer = &certs.RemoteSigner{URL: "https://signer.example.com:8888", CAs: certs.Bundle{ca.Certificate},
		Client: tls.Certificate{Certificate: [][]byte{{0}}}}
	report, err := Maintain(t.Context(), c, o)
	if err != nil || report.Items[0].Action != certs.Kept ||
		!strings.Contains(strings.Join(report.Items[0].Notes, " "), "less than a third of the lifetime is left") {
		t.Errorf("got %+v, %v; want the CA kept, and its rotation due", report, err)
	}
}

func TestMaintainOptions(t *testing.T) {
	for want, spoil := range map[string]func(*Options){
		"ca-secret": func(o *Options) { o.CASecret = o.Secret },
		"secret":    func(o *Options) { o.Secret = "" },
		"wait":      func(o *Options) { o.Within = time.Second },
		"service":   func(o *Options) { o.Service = certs.Service{} },
		"key-type":  func(o *Options) { o.KeyType = "ed25519" },
		"lifetime":  func(o *Options) { o.Lifetime = 2 * certs.MaxLeafLifetime },
	} {
		o := maintained
		spoil(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error about %s", o, err, want)
		}
	}
	if err := maintained.Validate(); err != nil {
		t.Error(err)
	}
}

func TestMaintainWrongClock(t *testing.T) {
	c := apply.Client{Cluster: clustertest.New(nil)}
	c.Now = func() time.Time { return clustertest.Now.Add(7 * time.Minute) }
	if _, err := Maintain(t.Context(), c, maintained); err == nil ||
		!strings.Contains(err.Error(), "found 7m0s ahead") {
		t.Errorf("got %v, want that the clock is wrong", err)
	}
}

// did returns the actions in a report, in order.
func did(report *certs.Report) string {
	var out []string
	for _, item := range report.Items {
		out = append(out, string(item.Action)+" "+item.Path)
	}
	return strings.Join(out, ", ")
}

// TestMaintainReports: the report contains exactly what was stored, with a note that no API
// trusts the CA yet.
func TestMaintainReports(t *testing.T) {
	c := apply.Client{Cluster: clustertest.New([]apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com",
		nil)}, emptyCASecret())}
	c.Aggregator.(*aggregatorfake.Clientset).PrependReactor("patch", "apiservices",
		func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("forbidden")
		})
	if report, err := Maintain(t.Context(), c, maintained); err == nil || did(report) != "created Secret demo/ca" {
		t.Errorf("with a caBundle that cannot be changed: got %s, %v; want the CA alone", did(report), err)
	}
	c = apply.Client{Cluster: clustertest.New(nil, emptyCASecret())}
	for _, want := range []string{"created Secret demo/ca, created Secret demo/s",
		"unchanged Secret demo/ca, unchanged Secret demo/s"} {
		report, err := Maintain(t.Context(), c, maintained)
		if err != nil || did(report) != want || !strings.Contains(strings.Join(report.Items[1].Notes, " "),
			"run the command again after you register the API") {
			t.Errorf("without an API: got %+v, %v; want %s, and a note", report, err, want)
		}
	}
}

// TestMaintainThirdPartyCAs: a third-party CA in a caBundle stays there and does not prevent the
// renewal of a certificate. A third-party CA next to the certificate is not trusted.
func TestMaintainThirdPartyCAs(t *testing.T) {
	c := apply.Client{Cluster: clustertest.New([]apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com",
		nil)}, emptyCASecret())}
	if _, err := Maintain(t.Context(), c, maintained); err != nil {
		t.Fatal(err)
	}
	other := clustertest.NewCA(t, "other", x509.ExtKeyUsageServerAuth).Certificate
	if err := c.ChangeCABundle(t.Context(), clustertest.Service, certs.Bundle{other}, nil); err != nil {
		t.Fatal(err)
	}
	later := clustertest.Now.Add(61 * 24 * time.Hour)
	c.Now, c.Config.Transport = func() time.Time { return later }, clustertest.Clock(later)
	report, err := Maintain(t.Context(), c, maintained)
	if err != nil ||
		did(report) != "unchanged Secret demo/ca, unchanged APIService v1.g.example.com, replaced Secret demo/s" {
		t.Fatalf("got %+v, %v; want the certificate replaced", report, err)
	}
	if bundle, err := certs.ParseBundle([]byte(caBundleOf(t, c))); err != nil || len(bundle) != 2 ||
		!bundle.Contains(other) {
		t.Errorf("the caBundle holds %d CAs (%v), want ours and the other", len(bundle), err)
	}

	stored, err := c.Core.CoreV1().Secrets(clustertest.Service.Namespace).Get(t.Context(), "s", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored.Data[certs.BundleFile] = append(stored.Data[certs.BundleFile],
		clustertest.NewCA(t, "stranger", x509.ExtKeyUsageServerAuth).CertPEM...)
	if _, err := c.Core.CoreV1().Secrets(stored.Namespace).Update(t.Context(), stored,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := caBundleOf(t, c)
	if report, err := Maintain(t.Context(), c, maintained); err != nil || caBundleOf(t, c) != before {
		t.Errorf("with another CA in the Secret: got %s, %v; want the caBundle as it was", did(report), err)
	}
}

// TestMaintainReportsBothPasses: the report contains the actions before the wait for
// APIServices. A CA that is also due is left to the next run, because the stored key pair is not
// served yet.
func TestMaintainReportsBothPasses(t *testing.T) {
	c := apply.Client{Cluster: clustertest.New([]apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com",
		nil)}, emptyCASecret())}
	waiting := maintained
	waiting.APIServices, waiting.Within = []string{"v1.g.example.com"}, time.Minute
	report, err := Maintain(t.Context(), c, waiting)
	if err != nil || did(report) != "created Secret demo/ca, replaced APIService v1.g.example.com, created Secret demo/s" {
		t.Errorf("at first: %+v, %v; want the CA and the key pair created, and the caBundle replaced", report, err)
	}
	due := clustertest.Now.Add(certs.CALifetime * 3 / 4)
	c.Now, c.Config.Transport = func() time.Time { return due }, clustertest.Clock(due)
	report, err = Maintain(t.Context(), c, waiting)
	if err != nil ||
		did(report) != "unchanged Secret demo/ca, unchanged APIService v1.g.example.com, replaced Secret demo/s" {
		t.Errorf("when both are due: %+v, %v; want the CA kept and the pair replaced", report, err)
	}
}

// TestMaintainExpired: Maintain does not replace an expired CA while a caBundle contains it, and
// changes nothing.
func TestMaintainExpired(t *testing.T) {
	c := apply.Client{Cluster: clustertest.New([]apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com",
		nil)}, emptyCASecret())}
	if _, err := Maintain(t.Context(), c, maintained); err != nil {
		t.Fatal(err)
	}
	before := len(writes(c))
	later := clustertest.Now.Add(certs.CALifetime + time.Hour)
	c.Now, c.Config.Transport = func() time.Time { return later }, clustertest.Clock(later)
	_, err := Maintain(t.Context(), c, maintained)
	for _, want := range []string{"expired at", "kubectl patch secret ca --namespace demo",
		"kubectl patch apiservice v1.g.example.com"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if after := writes(c)[before:]; len(after) > 0 {
		t.Errorf("got the writes %q, want none", after)
	}
}

// TestMaintainRecreatedAPIService: an APIService that was recreated without a caBundle during a
// rotation gets the CAs in the Secret. If the certificate expired meanwhile, the error describes
// how to start over.
func TestMaintainRecreatedAPIService(t *testing.T) {
	f := newFakeInSecrets(t)
	f.runTo(ServingCA, "trust", EventObserved)
	inUse, err := f.store().Read(certs.ServingDir, certs.BundleFile)
	if err != nil {
		t.Fatal(err)
	}
	a := clustertest.APIService("v1.g.example.com", nil)
	if _, err := f.secrets.Aggregator.ApiregistrationV1().APIServices().Create(t.Context(), &a,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	opts := maintained
	opts.Wait = f.options(Serving).Wait
	f.secrets.Config.Transport = clustertest.Clock(f.now)
	report, err := Maintain(t.Context(), f.secrets, opts)
	// no server exists
	if _, blocked := errors.AsType[*BlockedError](err); !blocked ||
		did(report) != "replaced APIService v1.g.example.com" {
		t.Errorf("got %s, %v; want the caBundle written, and the rotation blocked", did(report), err)
	}
	if got := certs.LenientBundle([]byte(caBundleOf(t, f.secrets))); len(got) != 2 ||
		!sameCAs(got, certs.LenientBundle(inUse[certs.BundleFile].Data)) {
		t.Errorf("caBundle: got %d CAs, want the two in use", len(got))
	}

	// ForceConflicts takes the caBundle back from another manager before the rotation continues.
	taken, err := f.secrets.Aggregator.ApiregistrationV1().APIServices().Get(t.Context(), a.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	taken.ManagedFields = clustertest.OwnedBy(a, "helm", metav1.ManagedFieldsOperationUpdate).ManagedFields
	if _, err := f.secrets.Aggregator.ApiregistrationV1().APIServices().Update(t.Context(), taken,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	forced := opts
	forced.ForceConflicts = true
	if report, _ := Maintain(t.Context(), f.secrets, forced); did(report) != "replaced APIService v1.g.example.com" {
		t.Errorf("forced: got %s, want the caBundle taken over", did(report))
	}

	f.now = f.now.Add(91 * 24 * time.Hour)
	f.secrets.Config.Transport = clustertest.Clock(f.now)
	_, err = Maintain(t.Context(), f.secrets, opts)
	for _, want := range []string{"the certificate in use expired at", "to give up this rotation, remove " +
		f.store().Path(servingState)} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := f.store().Remove(servingState); err != nil {
		t.Fatal(err)
	}
	report, err = Maintain(t.Context(), f.secrets, opts)
	if leaf := f.cert(certs.ServingDir); err != nil || !f.now.Before(leaf.NotAfter) {
		t.Errorf("then: got %s, %v, and a certificate until %s; want another one", did(report), err, leaf.NotAfter)
	}
}

// TestMaintainOtherFieldManager: if another field manager owns the caBundle, Maintain returns an
// error with the command that takes it over.
func TestMaintainOtherFieldManager(t *testing.T) {
	a := clustertest.OwnedBy(clustertest.APIService("v1.g.example.com", nil), "helm",
		metav1.ManagedFieldsOperationUpdate)
	c := apply.Client{Cluster: clustertest.New([]apiregistrationv1.APIService{a}, emptyCASecret())}
	opts := maintained
	if _, err := Maintain(t.Context(), c, opts); err == nil || !strings.Contains(err.Error(), `found "helm"`) ||
		!strings.Contains(err.Error(), "certgen renew --force-conflicts") {
		t.Fatalf("got %v, want it refused", err)
	}
	opts.ForceConflicts = true
	if report, err := Maintain(t.Context(), c, opts); err != nil ||
		caBundleOf(t, c) != string(secretData(t, c, "ca")[certs.CertFile]) {
		t.Errorf("forced: got %s, %v; want the caBundle written", did(report), err)
	}
}

// TestTransient: transient errors are retried; permanent ones are not.
func TestTransient(t *testing.T) {
	resource := corev1.Resource("secrets")
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{apierrors.NewTooManyRequests("busy", 1), true},
		{apierrors.NewServerTimeout(resource, "get", 1), true},
		{apierrors.NewServiceUnavailable("starting"), true},
		{apierrors.NewConflict(resource, "ca", errors.New("it changed")), true},
		{fmt.Errorf("dial: %w", syscall.ECONNREFUSED), true},
		{fmt.Errorf("read: %w", syscall.ECONNRESET), true},
		{&cluster.StatusError{Status: http.StatusTooManyRequests}, true},
		{&cluster.StatusError{Status: http.StatusServiceUnavailable}, false}, // of an API that is not available
		{apierrors.NewForbidden(resource, "ca", errors.New("no permission")), false},
		{errors.New("another"), false},
	} {
		if got := isTransient(fmt.Errorf("step: %w", tc.err)); got != tc.want {
			t.Errorf("%v: got %v, want %v", tc.err, got, tc.want)
		}
		if got := isPermanent(&stopError{tc.err}); got == tc.want {
			t.Errorf("%v stops a step: %v, want %v", tc.err, got, !tc.want)
		}
	}
}

// TestMaintainConcurrentLabel: a concurrent change of fields that certgen does not manage is not a
// conflict.
func TestMaintainConcurrentLabel(t *testing.T) {
	c := apply.Client{Cluster: clustertest.New([]apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com",
		nil)}, emptyCASecret())}
	core, met := c.Core.(*fake.Clientset), false
	core.PrependReactor("update", "secrets", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if met {
			return false, nil, nil
		}
		met = true
		labelled := emptyCASecret()
		labelled.Labels = map[string]string{"team": "a"}
		if err := core.Tracker().Update(action.GetResource(), labelled, labelled.Namespace); err != nil {
			return true, nil, err
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("secrets"), "ca", errors.New("it changed"))
	})
	if _, err := Maintain(t.Context(), c, maintained); err != nil {
		t.Fatal(err)
	}
	secret, err := core.CoreV1().Secrets(clustertest.Service.Namespace).Get(t.Context(), "ca", metav1.GetOptions{})
	if err != nil || secret.Labels["team"] != "a" || len(secret.Data[certs.KeyFile]) == 0 {
		t.Errorf("got %v and the labels %v, want the CA, and the label kept", err, secret.Labels)
	}
}
