// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// injectorAnnotations begins the names of the annotations by which cert-manager's injector is told to keep a caBundle:
// inject-ca-from, inject-ca-from-secret and inject-apiserver-ca.
var injectorAnnotations = []string{"cert-manager.io/inject-ca-from", "cert-manager.io/inject-apiserver-ca"}

// OwnedError says that somebody else keeps an APIService's caBundle. Nothing was written.
type OwnedError struct {
	APIService string
	Owner      string // the annotation of cert-manager's injector, or a field manager
	Injector   bool   // cert-manager writes its own caBundle again, whatever is forced
}

func (e *OwnedError) Error() string {
	if e.Injector {
		return fmt.Sprintf("APIService %s: cert-manager keeps its caBundle (annotation %s), so nothing was written; "+
			"leave the certificates to cert-manager and look with certgen doctor, or take the annotation away first", e.APIService, e.Owner)
	}
	return fmt.Sprintf("APIService %s: expected the field manager %s to own spec.caBundle, found %s, so nothing was written; "+
		"take caBundle out of what it applies, and take the field over once: certgen apply --force-conflicts", e.APIService, FieldManager, e.Owner)
}

// refuseInjector returns *OwnedError where cert-manager keeps the caBundle.
func refuseInjector(a apiregistrationv1.APIService) error {
	if annotation := injectedBy(a); annotation != "" {
		return &OwnedError{APIService: a.Name, Owner: annotation, Injector: true}
	}
	return nil
}

// refuseOthers returns *OwnedError where another field manager owns the caBundle, alone or together with certgen.
func refuseOthers(a apiregistrationv1.APIService) error {
	if _, others := owners(a.ManagedFields, caBundlePath); len(others) > 0 {
		return &OwnedError{APIService: a.Name, Owner: strings.Join(others, ", ")}
	}
	return nil
}

// injectedBy returns the annotation by which cert-manager keeps the caBundle, or "".
func injectedBy(a apiregistrationv1.APIService) string {
	for name := range a.Annotations {
		for _, begin := range injectorAnnotations {
			if strings.HasPrefix(name, begin) {
				return name
			}
		}
	}
	return ""
}

var caBundlePath = fieldpath.MakePathOrDie("spec", "caBundle")

// owners tells whether certgen has applied one of the fields, and who else owns one.
func owners(fields []metav1.ManagedFieldsEntry, paths ...fieldpath.Path) (ours bool, others []string) {
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
