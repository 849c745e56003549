// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/manifest"
)

// CABundleOptions say what may be overruled.
type CABundleOptions struct {
	// ForceConflicts takes the field from other managers. cert-manager's injector would write it again, so it does not
	// help against that.
	ForceConflicts bool
	// ClearInsecure sets insecureSkipTLSVerify to false in the same write.
	ClearInsecure bool
}

// Applied is an APIService after its caBundle was applied.
type Applied struct {
	APIService apiregistrationv1.APIService // as it is now; its resourceVersion is what SeenBy asks for
	Changed    bool                         // false when it was right before
}

// caBundleChange is what has to be done to one APIService.
type caBundleChange struct {
	before   apiregistrationv1.APIService
	reason   string   // why there must be a write; "" when all is right
	shared   string   // who else owns it when all is right
	insecure bool     // insecureSkipTLSVerify is taken back
	patches  [][]byte // applied one after the other
}

// ApplyCABundle makes bundle the caBundle of every APIService of the Service, sorted and without doubles and expired CAs.
// All writes are tried as a dry run before the first one. An APIService that trusts the same set and is owned by certgen is
// left alone. *OwnedError, joined for all, tells who else keeps the field; see CABundleOptions for the way around.
func (c *Cluster) ApplyCABundle(ctx context.Context, s certs.Service, bundle certs.Bundle) ([]Applied, error) {
	changes, err := c.planCABundles(ctx, s, bundle, CABundleOptions{})
	if err != nil {
		return nil, err
	}
	if len(changes) == 0 {
		return nil, fmt.Errorf("expected APIServices of the Service %s/%s, found none; register the API first", s.Namespace, s.Name)
	}
	var out []Applied
	for _, dryRun := range []bool{true, false} {
		out = nil
		for _, change := range changes {
			applied, err := c.applyCABundle(ctx, change, dryRun, false)
			if err != nil {
				return out, err
			}
			out = append(out, applied)
		}
	}
	return out, nil
}

// planCABundles decides for every APIService of the Service, and refuses for all together.
func (c *Cluster) planCABundles(ctx context.Context, s certs.Service, bundle certs.Bundle, o CABundleOptions) ([]caBundleChange, error) {
	if bundle = bundle.Merge(c.now()); len(bundle) == 0 {
		return nil, errors.New("plan caBundle: expected a CA that is valid, found none; an empty caBundle would trust the CAs of kube-apiserver's system")
	}
	for _, cert := range bundle {
		if !cert.IsCA {
			return nil, fmt.Errorf("plan caBundle: expected CAs only, found %s", cert.Subject)
		}
	}
	all, err := c.APIServices(ctx, s)
	if err != nil {
		return nil, err
	}
	var changes []caBundleChange
	var refusals []error
	for _, a := range all {
		change, err := planCABundle(a, bundle, o)
		changes, refusals = append(changes, change), append(refusals, err)
	}
	return changes, errors.Join(refusals...)
}

func planCABundle(a apiregistrationv1.APIService, bundle certs.Bundle, o CABundleOptions) (caBundleChange, error) {
	change := caBundleChange{before: a, insecure: a.Spec.InsecureSkipTLSVerify}
	if err := refuseInjector(a); err != nil {
		return change, err
	}
	if a.Spec.InsecureSkipTLSVerify && !o.ClearInsecure {
		return change, fmt.Errorf("APIService %s: expected insecureSkipTLSVerify false, found true, which no caBundle may stand beside; "+
			"take it out of what applies the APIService, or have it set to false in the same write: certgen apply --clear-insecure", a.Name)
	}
	ours, others := owners(a.ManagedFields, caBundlePath)
	same := sameSet(a.Spec.CABundle, bundle)
	caBundle := [][]byte{bundle.PEM()}
	switch {
	case change.insecure:
		change.reason = "insecureSkipTLSVerify is taken back"
	case len(a.Spec.CABundle) == 0:
		change.reason = "it has no caBundle"
	case !same:
		change.reason = "its caBundle is another"
	case len(others) > 0 && o.ForceConflicts:
		change.reason = "its caBundle is owned by " + strings.Join(others, ", ")
		if bytes.Equal(a.Spec.CABundle, caBundle[0]) {
			// To apply the bytes that are there is no conflict, whatever is forced, and leaves two owners. A newline means nothing.
			caBundle = [][]byte{append([]byte("\n"), caBundle[0]...), caBundle[0]}
		}
	case !ours:
		change.reason = FieldManager + " does not own its caBundle yet"
		caBundle[0] = a.Spec.CABundle // no conflict with other managers
	default:
		change.shared = strings.Join(others, ", ")
		return change, nil
	}
	if err := refuseOthers(a); err != nil && !same && !o.ForceConflicts {
		return change, err
	}
	for _, data := range caBundle {
		patch, err := manifest.CABundlePatch{Name: a.Name, UID: string(a.UID), CABundle: data, ClearInsecure: change.insecure}.Encode()
		if err != nil {
			return change, err
		}
		change.patches = append(change.patches, patch)
	}
	return change, nil
}

// applyCABundle writes one change. Its uid keeps a server from making an APIService that is gone anew.
func (c *Cluster) applyCABundle(ctx context.Context, change caBundleChange, dryRun, force bool) (Applied, error) {
	if change.reason == "" {
		return Applied{APIService: change.before}, nil
	}
	out := Applied{Changed: true}
	for _, patch := range change.patches {
		after, err := c.Aggregator.ApiregistrationV1().APIServices().Patch(ctx, change.before.Name, types.ApplyPatchType, patch, patchOptions(dryRun, force))
		if err != nil {
			return Applied{}, fmt.Errorf("apply caBundle of APIService %s: %w", change.before.Name, explainConflict(err))
		}
		out.APIService = *after
	}
	return out, nil
}

func patchOptions(dryRun, force bool) metav1.PatchOptions {
	options := metav1.PatchOptions{FieldManager: FieldManager, Force: &force, FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return options
}

func explainConflict(err error) error {
	if apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		return fmt.Errorf("%w; take the field over once: certgen apply --force-conflicts", err)
	}
	return err
}

// sameSet compares as sets: the order of CAs, and text around them, mean nothing. A caBundle that cannot be read strictly is
// never the same.
func sameSet(caBundle []byte, bundle certs.Bundle) bool {
	have, err := certs.ParseBundle(caBundle)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(have, func(x *x509.Certificate) bool { return !bundle.Contains(x) }) &&
		!slices.ContainsFunc(bundle, func(x *x509.Certificate) bool { return !have.Contains(x) })
}

// lenient reads what x509.CertPool.AppendCertsFromPEM, and so kube-aggregator, takes from a caBundle: it passes over
// everything that it cannot use.
func lenient(data []byte) certs.Bundle {
	var out certs.Bundle
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return out
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, cert)
		}
	}
}
