// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// injectors maps the prefixes of annotations to the controllers that then maintain a caBundle:
// cert-manager's inject-ca-from, inject-ca-from-secret and inject-apiserver-ca, and
// inject-cabundle of OpenShift's service-ca operator.
var injectors = map[string]string{
	"cert-manager.io/inject-ca-from": "cert-manager", "cert-manager.io/inject-apiserver-ca": "cert-manager",
	"service.beta.openshift.io/inject-cabundle":  "the service-ca operator",
	"service.alpha.openshift.io/inject-cabundle": "the service-ca operator",
}

// OwnedError reports that another manager maintains an APIService's caBundle. Nothing was
// written.
type OwnedError struct {
	APIService string
	Owner      string // the annotation of an injector, or a field manager
	Injector   string // the controller that restores its caBundle after any write; empty for a field manager
}

func (e *OwnedError) Error() string {
	if e.Injector != "" {
		return fmt.Sprintf("APIService %s: %s owns the caBundle (annotation %s), so nothing was written; "+
			"leave the certificates to the injector and check them with certgen verify, or remove the annotation first",
			e.APIService, e.Injector, e.Owner)
	}
	return fmt.Sprintf("APIService %s: expected the field manager %s to own spec.caBundle, found %s, so nothing was "+
		"written; "+
		"remove caBundle from the manifests of that manager, and %s", e.APIService, FieldManager, e.Owner, TakeOver)
}

// TakeOver is the remedy if another field manager owns a field that certgen must write.
const TakeOver = "take over the field once: certgen apply --force-conflicts, or for certificates in Secrets certgen " +
	"renew --force-conflicts"

// InjectedBy returns the annotation of an injector that maintains the caBundle and the
// injector's name, or nil if there is none.
func InjectedBy(a apiregistrationv1.APIService) *OwnedError {
	for _, name := range slices.Sorted(maps.Keys(a.Annotations)) {
		for begin, injector := range injectors {
			if strings.HasPrefix(name, begin) {
				return &OwnedError{APIService: a.Name, Owner: name, Injector: injector}
			}
		}
	}
	return nil
}

// OwnedByOthers returns the other field managers that own the caBundle, alone or together with
// certgen, or nil if there are none.
func OwnedByOthers(a apiregistrationv1.APIService) *OwnedError {
	if _, others := Owners(a.ManagedFields, CABundlePath); len(others) > 0 {
		return &OwnedError{APIService: a.Name, Owner: strings.Join(others, ", ")}
	}
	return nil
}

// CABundlePath is the field that certgen owns.
var CABundlePath = fieldpath.MakePathOrDie("spec", "caBundle")

// Owners reports whether certgen has applied one of the fields, and which other managers own one
// of them.
func Owners(fields []metav1.ManagedFieldsEntry, paths ...fieldpath.Path) (ours bool, others []string) {
	for _, f := range fields {
		set := &fieldpath.Set{}
		if f.FieldsV1 == nil || set.FromJSON(f.FieldsV1.GetRawReader()) != nil || !slices.ContainsFunc(paths, set.Has) {
			continue
		}
		if f.Manager == FieldManager && f.Operation == metav1.ManagedFieldsOperationApply {
			ours = true
		} else {
			others = append(others, fmt.Sprintf("%q", cmp.Or(f.Manager, "unknown")))
		}
	}
	slices.Sort(others)
	return ours, slices.Compact(others)
}
