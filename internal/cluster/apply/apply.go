// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
)

// Options define what to copy from a directory of certs.Init to a cluster.
type Options struct {
	Service certs.Service
	Dir     string      // directory created by certgen init
	Store   certs.Store // used instead of Dir
	Secret  string      // name of the Secret for the serving pair, in the namespace of the Service; empty means none
	DryRun  bool        // the cluster tries every write and stores nothing
	// ForceConflicts takes ownership of fields from other managers. It does not help against an
	// injector, which would restore its own caBundle.
	ForceConflicts bool
	// ClearInsecure sets insecureSkipTLSVerify to false in the same write.
	ClearInsecure bool
	// KeepTrust keeps the other CAs in caBundles, which another rotation or client may need, and
	// adds only those that verify the certificate.
	KeepTrust bool
	// ReplaceTrust allows changes that can break connections: removing a trusted CA, or serving
	// a certificate that is not trusted yet.
	ReplaceTrust bool
}

// Plan contains the planned writes of an apply, in order, trust before identity. After Apply, it
// is its report.
type Plan struct {
	certs.Report
	changes []planned // one per item, until Apply sets what was done
}

// planned is the planned change of one object.
type planned struct {
	certs.Item
	write  func(ctx context.Context, dryRun bool) error // nil if no change is needed
	before apiregistrationv1.APIService                 // the APIService before the change, if the object is one
	bundle certs.Bundle                                 // the planned CAs in its caBundle
}

func (p *Plan) add(c planned) {
	p.Items, p.changes = append(p.Items, c.Item), append(p.changes, c)
}

// Validate returns an *certs.InvalidError for each invalid option, joined by errors.Join.
func (o Options) Validate() error {
	errs := []error{o.Service.Validate()}
	if o.Dir == "" && o.Store == nil {
		errs = append(errs, &certs.InvalidError{Field: "dir",
			Reason: "expected the directory of certgen init, such as pki"})
	}
	if problems := validation.IsDNS1123Subdomain(o.Secret); o.Secret != "" && len(problems) > 0 {
		errs = append(errs, &certs.InvalidError{Field: "secret", Value: o.Secret,
			Reason: "expected the Secret's name: " + problems[0]})
	}
	return errors.Join(errs...)
}

// PlanApply reads the directory and the cluster and returns the planned writes: the caBundle of
// every APIService of the Service, and the serving Secret. It writes nothing. A problem with one
// object fails the whole plan. Errors are *certs.InvalidError, *certs.RefusedError for files,
// and *cluster.OwnedError and others for the cluster, joined by errors.Join.
func (c Client) PlanApply(ctx context.Context, o Options) (*Plan, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Store == nil {
		o.Store = certs.Dir(o.Dir)
	}
	if err := cluster.CheckClock(ctx, c); err != nil { // before certificates are checked by it
		return nil, err
	}
	source, err := ReadSource(o.Store, o.Service, c.Time())
	if err == nil && o.Secret != "" && o.Dir != "" {
		err = refuseFaulty(o.Store.Path(certs.ServingDir), c.Time())
	}
	if err != nil {
		return nil, err
	}
	plan := &Plan{Report: *certs.NewReport("ApplyReport")}
	plan.DryRun = o.DryRun
	err = c.planCABundles(ctx, plan, o, func(a apiregistrationv1.APIService) (certs.Bundle, bool) {
		if o.KeepTrust {
			return certs.LenientBundle(a.Spec.CABundle).Merge(c.Time(), source.signers(c.Time())...), true
		}
		return source.Bundle, true
	})
	if err != nil {
		return nil, errors.Join(err, injectorErrors(plan.changes, source, c.Time()))
	}
	changes := plan.changes
	var stored *corev1.Secret
	if o.Secret != "" {
		var secret planned
		if secret, stored, err = c.planSecret(ctx, o, source); err != nil {
			return nil, err
		}
		plan.add(secret)
	}
	if !o.ReplaceTrust {
		if err := c.refuseBreaking(changes, stored, source); err != nil {
			return nil, err
		}
	}
	if len(changes) == 0 {
		text := fmt.Sprintf("no APIService has the Service %s/%s as its backend; run the command again after "+
			"you register the API", o.Service.Namespace, o.Service.Name)
		if o.Secret == "" {
			return nil, errors.New("plan: " + text)
		}
		plan.Items[0].Notes = []string{text}
	}
	return plan, nil
}

// Apply executes the plan with the field manager certgen. It first sends every write as a
// server-side dry run, so that a rejected write leaves the cluster unchanged. If the plan is a
// dry run, that is all. After an error, the plan contains the items before the failed one.
func (c Client) Apply(ctx context.Context, plan *Plan) error {
	for _, dryRun := range []bool{true, false} {
		if plan.DryRun && !dryRun {
			break
		}
		var errs []error
		done := 0
		for i, change := range plan.changes {
			if change.write == nil {
				continue
			}
			err := change.write(ctx, dryRun)
			if errs = append(errs, err); err != nil && !dryRun {
				done = i
				break
			}
		}
		if err := errors.Join(errs...); err != nil {
			plan.Items = plan.Items[:done]
			return err
		}
	}
	return nil
}

// PlanAndApply plans and applies. It calls show with each plan before executing it. It plans
// again if an object changed meanwhile, because the status of an APIService may change at any
// time. The last plan also contains the writes of earlier attempts.
func (c Client) PlanAndApply(ctx context.Context, o Options, show func(*Plan)) (plan *Plan, err error) {
	done := []certs.Item{} // including attempts that failed because of a change; never null in JSON
	err = retry.OnError(changedBackoff, Changed, func() error {
		next, err := c.PlanApply(ctx, o)
		if err != nil {
			return err
		}
		show(next)
		err = c.Apply(ctx, next)
		done = Merge(done, next.Items...)
		next.Items = done
		plan = next
		return err
	})
	return plan, err
}

// Merge adds more to items in place, with one item per object. An item Kept does not replace an
// earlier change of the same object; only its notes are used.
func Merge(items []certs.Item, more ...certs.Item) []certs.Item {
	for _, item := range more {
		i := slices.IndexFunc(items, func(before certs.Item) bool { return before.Path == item.Path })
		switch {
		case i < 0:
			items = append(items, item)
		case item.Action == certs.Kept:
			items[i].Notes = item.Notes
		default:
			items[i] = item
		}
	}
	return items
}

// changedBackoff takes six seconds in total. When the endpoints of an APIService change, each
// kube-apiserver writes its status several times a second for a second or two.
var changedBackoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.6, Jitter: 0.5, Steps: 10}

// Changed reports whether a write failed because the object had changed, so that it must be
// planned again. A conflict with another field manager does not count.
func Changed(err error) bool {
	return apierrors.IsConflict(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
}

// Client writes certgen's objects in a cluster.
type Client struct{ *cluster.Cluster }

// Source is the content of a directory of certgen init that is relevant to the cluster. It does
// not include the keys of CAs.
type Source struct {
	service certs.Service
	Store   certs.Store
	Chain   certs.Bundle
	Bundle  certs.Bundle
	key     []byte
}

func (s *Source) file(name string) string { return s.Store.Path(certs.ServingDir, name) }

// signers returns the CAs in the bundle that verify the certificate.
func (s *Source) signers(now time.Time) certs.Bundle {
	return slices.DeleteFunc(slices.Clone(s.Bundle), func(ca *x509.Certificate) bool {
		return VerifyServing(s.Chain, certs.Bundle{ca}, s.service, now) != nil
	})
}

// ReadSource reads the serving certificate, its key and its CAs, and verifies the certificate as
// kube-aggregator does.
func ReadSource(store certs.Store, s certs.Service, now time.Time) (*Source, error) {
	src := &Source{service: s, Store: store}
	files, err := store.Read(certs.ServingDir)
	if err != nil {
		return nil, err
	}
	certFile := src.file(certs.CertFile)
	if _, ok := files[certs.CertFile]; !ok {
		return nil, &certs.RefusedError{Path: certFile,
			Reason: "expected the serving certificate of certgen init, found none; set --dir to its directory"}
	}
	src.key = files[certs.KeyFile].Data
	if src.Chain, err = certs.ParseBundle(files[certs.CertFile].Data); err != nil {
		return nil, &certs.RefusedError{Path: certFile, Reason: err.Error()}
	}
	if src.Bundle, err = certs.ParseCAs(files[certs.BundleFile].Data, src.file(certs.BundleFile), now); err != nil {
		return nil, err
	}
	if err := VerifyServing(src.Chain, src.Bundle, s, now); err != nil {
		return nil, &certs.RefusedError{Path: certFile, Reason: fmt.Sprintf(
			"kube-aggregator would refuse the certificate: %v; issue it again: "+
				"certgen init --service %s --namespace %s --dir %s", err, s.Name, s.Namespace, store.Path())}
	}
	return src, nil
}
