// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1ac "k8s.io/kube-aggregator/pkg/client/applyconfiguration/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/frontproxy"
)

// ChangeCABundle adds CAs to the caBundle of every APIService of the Service, sorted and without
// duplicates and expired CAs, and removes others. It keeps all other CAs. All writes are tried
// as a dry run before the first one, and each fails if the APIService changed meanwhile. An
// APIService that needs no change and is owned by certgen is not written. *cluster.OwnedError,
// joined for all APIServices, reports other owners of the field. In that case, CAs are not
// removed from any APIService, but are added where possible, which breaks nothing.
func (c Client) ChangeCABundle(ctx context.Context, s certs.Service, add, remove certs.Bundle) error {
	plan, found := &Plan{}, false
	refused := c.planCABundles(ctx, plan, Options{Service: s},
		func(a apiregistrationv1.APIService) (certs.Bundle, bool) {
			found = true
			return certs.LenientBundle(a.Spec.CABundle).Merge(c.Time(), add...).Without(remove...), len(add) > 0 ||
				!a.Spec.InsecureSkipTLSVerify
		})
	if _, owned := errors.AsType[*cluster.OwnedError](refused); refused != nil && (!owned || len(remove) > 0) {
		return refused
	}
	if !found {
		return fmt.Errorf("expected APIServices for the Service %s/%s, found none; register the API first",
			s.Namespace, s.Name)
	}
	return errors.Join(refused, c.Apply(ctx, plan))
}

// FillCABundles sets the CAs in those APIServices of the Service that have no caBundle, for
// example because they were recreated, and returns the written items. Such APIServices do not
// work, so the change cannot break them.
func (c Client) FillCABundles(ctx context.Context, s certs.Service, cas certs.Bundle) ([]certs.Item, error) {
	return c.writeCABundles(ctx, Options{Service: s}, func(a apiregistrationv1.APIService) (certs.Bundle, bool) {
		return cas, len(a.Spec.CABundle) == 0 && !a.Spec.InsecureSkipTLSVerify
	})
}

// TakeOverCABundles makes certgen the owner of caBundles that other field managers own, without
// changing their CAs, and returns the written items.
func (c Client) TakeOverCABundles(ctx context.Context, s certs.Service) ([]certs.Item, error) {
	return c.writeCABundles(ctx, Options{Service: s, ForceConflicts: true},
		func(a apiregistrationv1.APIService) (certs.Bundle, bool) {
			there := certs.LenientBundle(a.Spec.CABundle).Merge(c.Time())
			return there, len(there) > 0 && cluster.OwnedByOthers(a) != nil
		})
}

// bundleFor returns the wanted caBundle of an APIService, or false if it should not be changed.
type bundleFor func(apiregistrationv1.APIService) (bundle certs.Bundle, ok bool)

func (c Client) writeCABundles(ctx context.Context, o Options, want bundleFor) (done []certs.Item, err error) {
	err = retry.OnError(changedBackoff, Changed, func() error {
		plan := &Plan{}
		if err := c.planCABundles(ctx, plan, o, want); err != nil {
			return err
		}
		err := c.Apply(ctx, plan)
		done = append(done, plan.Items...)
		return err
	})
	return done, err
}

// planCABundles plans the caBundles of all APIServices of the Service. If some of them cannot be
// written, it returns all errors joined.
func (c Client) planCABundles(ctx context.Context, plan *Plan, o Options, want bundleFor) error {
	all, err := c.APIServices(ctx, o.Service)
	if err != nil {
		return err
	}
	var refusals []error
	for _, a := range all {
		bundle, ok := want(a)
		if !ok {
			continue
		}
		if err := usable(bundle); err != nil {
			return fmt.Errorf("APIService %s: %w", a.Name, err)
		}
		change, err := c.planCABundle(a, bundle, o)
		plan.add(change)
		refusals = append(refusals, err)
	}
	return errors.Join(refusals...)
}

func usable(bundle certs.Bundle) error {
	if len(bundle) == 0 {
		return errors.New("plan caBundle: expected a valid CA, found none; with an empty caBundle kube-apiserver " +
			"would trust the CAs of its operating system")
	}
	for _, cert := range bundle {
		if !cert.IsCA {
			return fmt.Errorf("plan caBundle: expected CAs only, found %s", cert.Subject)
		}
	}
	return nil
}

func insecure(a apiregistrationv1.APIService) error {
	return fmt.Errorf("APIService %s: insecureSkipTLSVerify is true, which does not permit a caBundle; "+
		"remove it from the manifest of the APIService, or set it to false in the same write: certgen apply "+
		"--clear-insecure", a.Name)
}

func (c Client) planCABundle(a apiregistrationv1.APIService, bundle certs.Bundle, o Options) (planned, error) {
	change := planned{Item: certs.Item{Path: "APIService " + a.Name, Action: certs.Replaced}, before: a, bundle: bundle}
	if owned := cluster.InjectedBy(a); owned != nil {
		return change, owned
	}
	if a.Spec.InsecureSkipTLSVerify && !o.ClearInsecure {
		return change, insecure(a)
	}
	ours, others := cluster.Owners(a.ManagedFields, cluster.CABundlePath)
	same := sameSet(a.Spec.CABundle, bundle)
	caBundle := [][]byte{bundle.PEM()}
	switch {
	case a.Spec.InsecureSkipTLSVerify:
		change.Reason = "insecureSkipTLSVerify is true"
	case len(a.Spec.CABundle) == 0:
		change.Reason = "no caBundle"
	case !same:
		change.Reason = "caBundle contains other CAs"
	case len(others) > 0 && o.ForceConflicts:
		change.Reason = "caBundle owned by " + strings.Join(others, ", ")
		if bytes.Equal(a.Spec.CABundle, caBundle[0]) {
			// Applying identical bytes is not a conflict, even with force, and leaves two
			// owners. An additional newline has no meaning.
			caBundle = [][]byte{append([]byte("\n"), caBundle[0]...), caBundle[0]}
		}
	case !ours:
		change.Reason = cluster.FieldManager + " does not own the caBundle yet"
		caBundle[0] = a.Spec.CABundle // no conflict with other managers
	default:
		change.Action, change.Reason = certs.Kept, "up to date, and certgen owns the caBundle"
		if len(others) > 0 {
			change.Reason += " together with " + strings.Join(others, ", ") +
				", so a change requires --force-conflicts"
		}
		return change, nil
	}
	if owned := cluster.OwnedByOthers(a); owned != nil && !same && !o.ForceConflicts {
		return change, owned
	}
	change.write = func(ctx context.Context, dryRun bool) error { return c.applyCABundle(ctx, a, caBundle, o, dryRun) }
	return change, nil
}

// applyCABundle applies one caBundle after the other to exactly this APIService and changes
// nothing else. The uid prevents the server from recreating a deleted APIService. The
// resourceVersion prevents it from reverting a concurrent change.
func (c Client) applyCABundle(ctx context.Context, a apiregistrationv1.APIService, writes [][]byte, o Options,
	dryRun bool) error {
	version := a.ResourceVersion
	for _, data := range writes {
		config := apiregistrationv1ac.APIService(a.Name).WithUID(a.UID).WithResourceVersion(version).
			WithSpec(apiregistrationv1ac.APIServiceSpec().WithCABundle(data...))
		if a.Spec.InsecureSkipTLSVerify {
			config.Spec.WithInsecureSkipTLSVerify(false)
		}
		applied, err := c.Aggregator.ApiregistrationV1().APIServices().Apply(ctx, config,
			serverSide(dryRun, o.ForceConflicts))
		if err != nil {
			return fmt.Errorf("apply caBundle of APIService %s: %w", a.Name, explainConflict(err))
		}
		if !dryRun {
			version = applied.ResourceVersion
		}
	}
	return nil
}

// MayChangeTrust applies the current caBundle of each APIService of the Service as a dry run. It
// detects a missing permission before a rotation begins.
func (c Client) MayChangeTrust(ctx context.Context, s certs.Service) error {
	return retry.OnError(changedBackoff, Changed, func() error {
		all, err := c.APIServices(ctx, s)
		errs := []error{err}
		for _, a := range all {
			if a.Spec.InsecureSkipTLSVerify {
				errs = append(errs, insecure(a))
			} else if len(a.Spec.CABundle) > 0 {
				errs = append(errs, c.applyCABundle(ctx, a, [][]byte{a.Spec.CABundle}, Options{}, true))
			}
		}
		return errors.Join(errs...)
	})
}

// serverSide returns the options of a server-side apply by certgen.
func serverSide(dryRun, force bool) metav1.ApplyOptions {
	options := metav1.ApplyOptions{FieldManager: cluster.FieldManager, Force: force}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return options
}

// explainConflict adds a remedy to a conflict with another field manager.
func explainConflict(err error) error {
	if apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		return fmt.Errorf("%w; %s", err, cluster.TakeOver)
	}
	return err
}

// sameSet reports whether caBundle contains the same set of CAs as bundle, regardless of order
// and surrounding text. It returns false for a caBundle that cannot be parsed strictly.
func sameSet(caBundle []byte, bundle certs.Bundle) bool {
	have, err := certs.ParseBundle(caBundle)
	return err == nil && len(have.Without(bundle...)) == 0 && len(bundle.Without(have...)) == 0
}

// NeedsNoChange reports whether the bundle contains all of add and none of remove.
func NeedsNoChange(bundle, add, remove certs.Bundle) bool {
	return len(add.Without(bundle...)) == 0 && !slices.ContainsFunc(remove, bundle.Contains)
}

// VerifyServing verifies the certificates that a server sends as kube-aggregator does.
func VerifyServing(chain, trust certs.Bundle, s certs.Service, now time.Time) error {
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: trust.Pool(), Intermediates: chain[1:].Pool(), DNSName: s.ServerName(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

// injectorErrors returns an error for each APIService with an injector whose caBundle does not
// verify our certificate.
func injectorErrors(changes []planned, src *Source, now time.Time) error {
	var errs []error
	for _, change := range changes {
		a := change.before
		injected := cluster.InjectedBy(a)
		if injected == nil {
			continue
		}
		if VerifyServing(src.Chain, certs.LenientBundle(a.Spec.CABundle), src.service, now) != nil {
			errs = append(errs, fmt.Errorf("APIService %s: the caBundle of %s does not verify %s",
				a.Name, injected.Injector, src.file(certs.CertFile)))
		}
	}
	return errors.Join(errs...)
}

// refuseBreaking returns an error for changes that can interrupt a running API: removing trust
// in a CA whose certificates may be served, and serving a certificate that is not trusted yet. A
// rotation does both in steps.
func (c Client) refuseBreaking(changes []planned, stored *corev1.Secret, src *Source) error {
	var errs []error
	for _, change := range changes {
		a := change.before
		trusted := certs.LenientBundle(a.Spec.CABundle).Merge(c.Time())
		if change.Action == certs.Kept || len(trusted) == 0 || a.Spec.InsecureSkipTLSVerify {
			continue // nothing works yet that could break
		}
		for _, ca := range trusted {
			if !change.bundle.Contains(ca) {
				errs = append(errs, fmt.Errorf(
					"APIService %s trusts %s (sha256 %s), which is not in %s: kube-apiserver would refuse servers "+
						"with a certificate of this CA; "+
						"rotate with certgen rotate, or allow it with --replace-trust", a.Name, ca.Subject,
					certs.Fingerprint(ca), src.file(certs.BundleFile)))
			}
		}
		if stored == nil {
			continue
		}
		leaves := certs.LenientBundle(stored.Data[corev1.TLSCertKey])
		if len(leaves) == 0 || leaves[0].Equal(src.Chain[0]) ||
			VerifyServing(leaves, trusted, src.service, c.Time()) != nil {
			continue // it is the same, or is not trusted either
		}
		if VerifyServing(src.Chain, trusted, src.service, c.Time()) != nil {
			errs = append(errs, fmt.Errorf(
				"APIService %s does not trust the CA of %s yet, as every kube-apiserver must before the Secret "+
					"changes; "+
					"rotate with certgen rotate, or apply without --secret, wait until all kube-apiservers have the "+
					"CA, and "+
					"apply again, or allow it with --replace-trust",
				a.Name, src.file(certs.CertFile)))
		}
	}
	return errors.Join(errs...)
}

// ChangeFrontProxyCAs adds CAs to the trust ConfigMap, removes others and keeps the rest. It
// changes the ConfigMap in place: without it, API servers would keep their trust or lose all of
// it. A concurrent change is a conflict, because a CA that another client added must not be
// lost. If no change is needed, nothing is written. With metav1.DryRunAll, the cluster tries the
// write even if no change is needed, and stores nothing.
func (c Client) ChangeFrontProxyCAs(ctx context.Context, add, remove certs.Bundle, dryRun ...string) error {
	cm, err := c.TrustConfigMap(ctx)
	if err != nil {
		return err
	}
	bundle, err := certs.ParseBundle([]byte(cm.Data[frontproxy.CAKey]))
	if err != nil {
		return fmt.Errorf("%s: %s: %w", cluster.TrustObject, frontproxy.CAKey, err)
	}
	if NeedsNoChange(bundle, add, remove) && dryRun == nil {
		return nil
	}
	next := append(bundle, add.Without(bundle...)...).Without(remove...)
	if len(next) == 0 {
		return fmt.Errorf("%s: expected another CA besides %s in %s, found none; API servers would trust no front proxy",
			cluster.TrustObject, remove[0].Subject, frontproxy.CAKey)
	}
	cm.Data[frontproxy.CAKey] = string(next.PEM())
	if _, err := c.Core.CoreV1().ConfigMaps(cm.Namespace).Update(ctx, cm,
		metav1.UpdateOptions{FieldManager: cluster.FieldManager, DryRun: dryRun}); err != nil {
		return fmt.Errorf("update %s: %w", cluster.TrustObject, err)
	}
	return nil
}
