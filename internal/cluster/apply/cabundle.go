// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1ac "k8s.io/kube-aggregator/pkg/client/applyconfiguration/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
)

// CABundleOptions say what may be overruled.
type CABundleOptions struct {
	// ForceConflicts takes the field from other managers. An injector would write it again, so it does not
	// help against that.
	ForceConflicts bool
	// ClearInsecure sets insecureSkipTLSVerify to false in the same write.
	ClearInsecure bool
}

// caBundleChange is what has to be done to one APIService.
type caBundleChange struct {
	before   apiregistrationv1.APIService
	bundle   certs.Bundle // what it shall hold
	reason   string       // why there must be a write; "" when all is right
	shared   string       // who else owns it when all is right
	insecure bool         // insecureSkipTLSVerify is taken back
	writes   [][]byte     // of caBundle, one after the other
}

// ChangeCABundle adds CAs to the caBundle of every APIService of the Service, sorted and without doubles and expired CAs, and takes others
// out; what else is there stays. All writes are tried as a dry run before the first one, and each is refused when the APIService changed
// meanwhile. One that needs no change and is owned by certgen is left alone. *OwnedError, joined for all, tells who else keeps the field.
func (c Client) ChangeCABundle(ctx context.Context, s certs.Service, add, remove certs.Bundle) error {
	changes, err := c.planCABundles(ctx, s, CABundleOptions{}, func(a apiregistrationv1.APIService) certs.Bundle {
		return certs.LenientBundle(a.Spec.CABundle).Merge(c.Time(), add...).Without(remove...)
	})
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		return fmt.Errorf("expected APIServices of the Service %s/%s, found none; register the API first", s.Namespace, s.Name)
	}
	for _, dryRun := range []bool{true, false} {
		for _, change := range changes {
			if err := c.applyCABundle(ctx, change, change.before.ResourceVersion, ServerSide(dryRun, false)); err != nil {
				return err
			}
		}
	}
	return nil
}

// planCABundles decides for every APIService of the Service what its caBundle shall be, and refuses for all together.
func (c Client) planCABundles(
	ctx context.Context, s certs.Service, o CABundleOptions, want func(apiregistrationv1.APIService) certs.Bundle,
) ([]caBundleChange, error) {
	all, err := c.APIServices(ctx, s)
	if err != nil {
		return nil, err
	}
	var changes []caBundleChange
	var refusals []error
	for _, a := range all {
		bundle := want(a)
		if err := usable(bundle); err != nil {
			return nil, err
		}
		change, err := planCABundle(a, bundle, o)
		changes, refusals = append(changes, change), append(refusals, err)
	}
	return changes, errors.Join(refusals...)
}

func usable(bundle certs.Bundle) error {
	if len(bundle) == 0 {
		return errors.New("plan caBundle: expected a CA that is valid, found none; an empty caBundle would trust the CAs of kube-apiserver's system")
	}
	for _, cert := range bundle {
		if !cert.IsCA {
			return fmt.Errorf("plan caBundle: expected CAs only, found %s", cert.Subject)
		}
	}
	return nil
}

func planCABundle(a apiregistrationv1.APIService, bundle certs.Bundle, o CABundleOptions) (caBundleChange, error) {
	change := caBundleChange{before: a, bundle: bundle, insecure: a.Spec.InsecureSkipTLSVerify}
	if err := cluster.RefuseInjector(a); err != nil {
		return change, err
	}
	if a.Spec.InsecureSkipTLSVerify && !o.ClearInsecure {
		return change, fmt.Errorf("APIService %s: expected insecureSkipTLSVerify false, found true, which no caBundle may stand beside; "+
			"take it out of what applies the APIService, or have it set to false in the same write: certgen apply --clear-insecure", a.Name)
	}
	ours, others := cluster.Owners(a.ManagedFields, cluster.CABundlePath)
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
		change.reason = cluster.FieldManager + " does not own its caBundle yet"
		caBundle[0] = a.Spec.CABundle // no conflict with other managers
	default:
		change.shared = strings.Join(others, ", ")
		return change, nil
	}
	if err := cluster.RefuseOthers(a); err != nil && !same && !o.ForceConflicts {
		return change, err
	}
	change.writes = caBundle
	return change, nil
}

// applyCABundle writes one change. Its uid keeps a server from making an APIService that is gone anew; a resourceVersion, if one is given,
// from undoing what somebody else did to it meanwhile.
func (c Client) applyCABundle(ctx context.Context, change caBundleChange, resourceVersion string, options metav1.ApplyOptions) error {
	for _, data := range change.writes {
		config := caBundleConfig(change.before, data)
		if change.insecure {
			config.Spec.WithInsecureSkipTLSVerify(false)
		}
		if resourceVersion != "" {
			config.WithResourceVersion(resourceVersion)
		}
		if _, err := c.Aggregator.ApiregistrationV1().APIServices().Apply(ctx, config, options); err != nil {
			return fmt.Errorf("apply caBundle of APIService %s: %w", change.before.Name, ExplainConflict(err))
		}
	}
	return nil
}

// caBundleConfig is the caBundle of that very APIService and nothing else.
func caBundleConfig(a apiregistrationv1.APIService, caBundle []byte) *apiregistrationv1ac.APIServiceApplyConfiguration {
	return apiregistrationv1ac.APIService(a.Name).WithUID(a.UID).WithSpec(apiregistrationv1ac.APIServiceSpec().WithCABundle(caBundle...))
}

// ServerSide are the options of a server-side apply by certgen.
func ServerSide(dryRun, force bool) metav1.ApplyOptions {
	options := metav1.ApplyOptions{FieldManager: cluster.FieldManager, Force: force}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return options
}

// ExplainConflict says of a conflict that it was one with another manager, and what to do.
func ExplainConflict(err error) error {
	if apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		return fmt.Errorf("%w; take the field over once: certgen apply --force-conflicts", err)
	}
	return err
}

// sameSet compares as sets: the order of CAs, and text around them, mean nothing. A caBundle that cannot be read strictly is
// never the same.
func sameSet(caBundle []byte, bundle certs.Bundle) bool {
	have, err := certs.ParseBundle(caBundle)
	return err == nil && len(have.Without(bundle...)) == 0 && len(bundle.Without(have...)) == 0
}

// NeedsNoChange is true when all of add are in the bundle, and none of remove.
func NeedsNoChange(bundle, add, remove certs.Bundle) bool {
	return len(add.Without(bundle...)) == 0 && !slices.ContainsFunc(remove, bundle.Contains)
}
