// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
)

func dryRun(l *suite) {
	before := l.versions()
	o := l.options()
	o.DryRun = true
	if got := l.mustApply(o); got[certs.Made] != 1 || got[certs.Replaced] != len(l.apiServices()) {
		l.Errorf("got %v, want the Secret created and every APIService changed", got)
	}
	if after := l.versions(); after != before {
		l.Errorf("got %s, want nothing written: %s", after, before)
	}
}

func applyTwice(l *suite) {
	l.mustApply(l.options())
	before := l.versions()
	if got := l.mustApply(l.options()); got[certs.Kept] != len(l.apiServices())+1 {
		l.Errorf("the second time: got %v, want all unchanged", got)
	}
	if after := l.versions(); after != before {
		l.Errorf("the second time: got %s, want nothing written: %s", after, before)
	}
	secret, err := l.cluster.Core.CoreV1().Secrets(l.service.Namespace).Get(l.Context(), secretName,
		metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	pair, err := certs.ParseKeyPair(secret.Data[certs.CertFile], secret.Data[certs.KeyFile])
	if err != nil || pair.Certificate.IsCA || len(secret.Data) != 3 {
		l.Errorf("got %v with %d keys, %v; want the serving pair and its CAs", pair, len(secret.Data), err)
	}
	o := l.allOptions()
	o.Secret = secretName
	l.healthy(o)
}

// changedMeanwhile checks that a plan is not applied to an object that another client changed
// since, such as a rotation that added its CA.
func changedMeanwhile(l *suite) {
	o := l.options()
	o.Dir, _ = l.nextDir()
	o.Secret, o.ForceConflicts = "", true
	plan, err := l.cluster.PlanApply(l.Context(), o)
	if err != nil {
		l.Fatal(err)
	}
	label := []byte(`{"metadata":{"labels":{"changed":"meanwhile"}}}`)
	all := l.apiServices()
	if _, err := l.cluster.Aggregator.ApiregistrationV1().APIServices().Patch(l.Context(), all[0].Name,
		types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
		l.Fatal(err)
	}
	if err := l.cluster.Apply(l.Context(), plan); len(certs.Flatten(err)) != 1 ||
		!apierrors.IsConflict(certs.Flatten(err)[0]) {
		l.Errorf("got %v, want a conflict", err)
	}
	for i, a := range l.apiServices() {
		if !bytes.Equal(a.Spec.CABundle, all[i].Spec.CABundle) {
			l.Errorf("%s: the caBundle was changed", a.Name)
		}
	}
}

// nextDir returns a directory with the current serving key pair and one more CA, and the bundle of
// both CAs.
func (l *suite) nextDir() (dir string, bundle certs.Bundle) {
	l.Helper()
	pair, err := certs.ReadKeyPair(filepath.Join(l.env.PKI(), certs.ServingDir))
	if err != nil {
		l.Fatal(err)
	}
	next, err := certs.NewCA(certs.CAOptions{Name: "next-ca", Usage: x509.ExtKeyUsageServerAuth})
	if err != nil {
		l.Fatal(err)
	}
	bundle = certs.Bundle{l.servingCA(), next.Certificate}
	dir = l.TempDir()
	if err := pair.Write(filepath.Join(dir, certs.ServingDir), bundle); err != nil {
		l.Fatal(err)
	}
	return dir, bundle
}

func (l *suite) servingCA() *x509.Certificate {
	l.Helper()
	pair, err := certs.ReadKeyPair(filepath.Join(l.env.PKI(), certs.ServingCADir))
	if err != nil {
		l.Fatal(err)
	}
	return pair.Certificate
}

func conflict(l *suite) {
	before := l.versions()
	o := l.options()
	next, bundle := l.nextDir()
	o.Dir = next
	if _, err := l.apply(o); !isOwned(err, false) {
		l.Errorf("got %v, want the other manager named", err)
	}
	if err := l.changeCABundle(bundle, nil); !isOwned(err, false) {
		l.Errorf("ChangeCABundle: got %v, want the other manager named", err)
	}
	if after := l.versions(); after != before {
		l.Errorf("got %s, want nothing written: %s", after, before)
	}
	l.shareSecret()
	// The same data, by force: then certgen is the only owner, and the next change needs no force.
	o.Dir, o.ForceConflicts = l.env.PKI(), true
	if got := l.mustApply(o); got[certs.Replaced] != len(l.apiServices())+1 {
		l.Errorf("the same bytes by force: got %v, want every APIService and the Secret taken over", got)
	}
	if got := l.mustApply(o); got[certs.Kept] != len(l.apiServices())+1 {
		l.Errorf("the same bytes by force, again: got %v, want all unchanged", got)
	}
	for _, a := range l.apiServices() {
		if want := (certs.Bundle{l.servingCA()}).PEM(); !bytes.Equal(a.Spec.CABundle, want) {
			l.Errorf("%s: got the caBundle %q, want %q", a.Name, a.Spec.CABundle, want)
		}
	}
	o.Dir, o.ForceConflicts = next, false
	if got := l.mustApply(o); got[certs.Replaced] != len(l.apiServices())+1 {
		l.Errorf("got %v, want all changed", got)
	}
	// To remove a CA needs more than force.
	o.Dir = l.env.PKI()
	if _, err := l.apply(o); err == nil || !strings.Contains(err.Error(), "--replace-trust") {
		l.Errorf("got %v, want it refused to take out a CA that is trusted", err)
	}
	o.ReplaceTrust = true
	l.mustApply(o)
	l.healthy(l.allOptions())
}

// shareSecret makes another field manager an owner of the Secret's data.
func (l *suite) shareSecret() {
	l.Helper()
	client := l.cluster.Core.CoreV1().Secrets(l.service.Namespace)
	secret, err := client.Get(l.Context(), secretName, metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	same := corev1ac.Secret(secretName, l.service.Namespace).WithType(secret.Type).WithData(secret.Data)
	if _, err := client.Apply(l.Context(), same, metav1.ApplyOptions{FieldManager: "helm"}); err != nil {
		l.Fatal(err)
	}
}

func isOwned(err error, injector bool) bool {
	owned, ok := errors.AsType[*cluster.OwnedError](err)
	return ok && (owned.Injector != "") == injector
}

func seenByEach(l *suite) {
	_, bundle := l.nextDir()
	urls, err := l.cluster.KubeAPIServers(l.Context())
	if err != nil || len(urls) != 2 {
		l.Fatalf("got kube-apiservers %q, %v; want 2", urls, err)
	}
	for _, change := range []struct{ add, remove certs.Bundle }{{add: bundle}, {remove: bundle[1:]}} {
		before := l.apiServices()
		if err := l.changeCABundle(change.add, change.remove); err != nil {
			l.Fatal(err)
		}
		for i, a := range l.apiServices() {
			if bytes.Equal(a.Spec.CABundle, before[i].Spec.CABundle) {
				l.Errorf("%s: got its caBundle unchanged, want it changed", a.Name)
			}
			for _, url := range urls {
				l.env.Eventually(l.T, "the write to be seen", waitLimit, func(ctx context.Context) error {
					return errors.Join(l.cluster.CheckObserved(ctx, url, a), l.cluster.CheckResponds(ctx, url, a))
				})
			}
		}
	}
	future := l.apiServices()[0]
	future.ResourceVersion = "99999999"
	if err := l.cluster.CheckObserved(l.Context(), urls[1], future); err == nil {
		l.Errorf("%s has seen a resourceVersion that does not exist", urls[1])
	}
	another := l.apiServices()[0]
	another.UID = "another"
	if err := l.cluster.CheckObserved(l.Context(), urls[1], another); err == nil {
		l.Errorf("%s has seen an APIService with another uid", urls[1])
	}
}

func certManager(l *suite) {
	l.patch(`{"metadata":{"annotations":{"cert-manager.io/inject-ca-from":"demo/x"}}}`)
	before := l.versions()
	o := l.options()
	o.ForceConflicts = true
	if _, err := l.apply(o); !isOwned(err, true) {
		l.Errorf("got %v, want cert-manager named", err)
	}
	if after := l.versions(); after != before {
		l.Errorf("got %s, want nothing written: %s", after, before)
	}
	l.patch(`{"metadata":{"annotations":null}}`)
}

// gone checks that the plan for a deleted APIService does not recreate it, and that nothing else
// is written.
func gone(l *suite) {
	o := l.options()
	o.Dir, _ = l.nextDir()
	o.ForceConflicts = true // a conflict would hide it
	plan, err := l.cluster.PlanApply(l.Context(), o)
	if err != nil {
		l.Fatal(err)
	}
	all := l.apiServices()
	client := l.cluster.Aggregator.ApiregistrationV1().APIServices()
	if err := client.Delete(l.Context(), all[0].Name, metav1.DeleteOptions{}); err != nil {
		l.Fatal(err)
	}
	before := l.versions()
	if err := l.cluster.Apply(l.Context(), plan); err == nil || !strings.Contains(err.Error(), "uid mismatch") {
		l.Errorf("got %v, want the uid refused", err)
	}
	if after := l.versions(); after != before {
		l.Errorf("got %s, want nothing written: %s", after, before)
	}
	// A recreated APIService with the same name and spec is not the one of the plan either.
	fresh := apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: all[0].Name}, Spec: all[0].Spec}
	if _, err := client.Create(l.Context(), &fresh, metav1.CreateOptions{}); err != nil {
		l.Fatal(err)
	}
	if err := l.cluster.Apply(l.Context(), plan); len(certs.Flatten(err)) != 1 ||
		!apierrors.IsConflict(certs.Flatten(err)[0]) {
		l.Errorf("created again: got %v, want a conflict", err)
	}
	l.mustApply(l.options())
	l.healthy(l.allOptions())
}

func insecure(l *suite) {
	l.patch(`{"spec":{"caBundle":null,"insecureSkipTLSVerify":true}}`)
	if _, err := l.apply(l.options()); err == nil || !strings.Contains(err.Error(), "--clear-insecure") {
		l.Errorf("got %v, want it refused", err)
	}
	if r := l.check(l.allOptions()); !has(r, "K01", catalogue.Warning, "insecureSkipTLSVerify is true") ||
		r.Failed(false) {
		l.Errorf("got %+v, want K01", r.Findings)
	}
	o := l.options()
	o.ClearInsecure = true
	if _, err := l.apply(o); err == nil {
		l.Error("another manager owns insecureSkipTLSVerify: got no error, want a conflict")
	}
	o.ForceConflicts = true
	l.mustApply(o)
	before := l.versions()
	if got := l.mustApply(l.options()); got[certs.Kept] != len(l.apiServices())+1 || l.versions() != before {
		l.Errorf("the second time: got %v and %s, want all unchanged: %s", got, l.versions(), before)
	}
	l.healthy(l.allOptions())
}
