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

// DryRun says how far an apply goes.
type DryRun string

// The dry runs.
const (
	DryRunNone   DryRun = "none"   // everything is written
	DryRunClient DryRun = "client" // the cluster is only read
	DryRunServer DryRun = "server" // the cluster tries every write and stores none
)

// Writes is true unless it only tries. Empty means DryRunNone.
func (d DryRun) Writes() bool { return d == "" || d == DryRunNone }

// Options say what to bring from a directory of certs.Init into a cluster.
type Options struct {
	Service certs.Service
	Dir     string      // directory as certgen init made it
	Store   certs.Store // in the place of Dir
	Secret  string      // name of the Secret for the serving pair, in the namespace of the Service; empty means none
	DryRun  DryRun      // empty means DryRunNone
	// ForceConflicts takes fields from other managers. An injector would write its own caBundle again, so it does not
	// help against that.
	ForceConflicts bool
	// ClearInsecure sets insecureSkipTLSVerify to false in the same write.
	ClearInsecure bool
	// KeepTrust leaves the CAs that caBundles hold besides, which another rotation or somebody else may need, and adds
	// those alone that vouch for the certificate.
	KeepTrust bool
	// ReplaceTrust allows what can break connections: a CA that is trusted now and will not be, or a certificate that
	// is not trusted yet.
	ReplaceTrust bool
}

// Plan is what an apply will write, and in the end its report: trust before identity.
type Plan struct {
	certs.Report
	dryRun  DryRun
	changes []planned // of each item, until Apply says what was done
}

// planned is what is to be done about one object.
type planned struct {
	certs.Item
	write  func(ctx context.Context, dryRun bool) error // nil for what is right
	before apiregistrationv1.APIService                 // the APIService as it was, if this is one
	bundle certs.Bundle                                 // what its caBundle shall hold
}

func (p *Plan) add(c planned) {
	p.Items, p.changes = append(p.Items, c.Item), append(p.changes, c)
}

// Validate returns all that is wrong with the options, as *certs.InvalidError joined by errors.Join.
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
	if o.DryRun != "" && !slices.Contains([]DryRun{DryRunNone, DryRunClient, DryRunServer}, o.DryRun) {
		errs = append(errs, &certs.InvalidError{Field: "dry-run", Value: string(o.DryRun),
			Reason: "expected none, client or server"})
	}
	return errors.Join(errs...)
}

// PlanApply reads the directory and the cluster and says what Apply will write: the caBundle of every APIService of the
// Service, and the serving Secret. It writes nothing. Whatever is in the way of one object refuses the plan as a whole:
// *certs.InvalidError, *certs.RefusedError for files, *OwnedError and others for the cluster, joined by errors.Join.
func (c Client) PlanApply(ctx context.Context, o Options) (*Plan, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Store == nil {
		o.Store = certs.Dir(o.Dir)
	}
	if err := cluster.CheckClock(ctx, c); err != nil { // before certificates are judged by it
		return nil, err
	}
	source, err := ReadSource(o.Store, o.Service, c.Time())
	if err == nil && o.Secret != "" && o.Dir != "" {
		err = refuseFaulty(o.Store.Path(certs.ServingDir), c.Time())
	}
	if err != nil {
		return nil, err
	}
	plan := &Plan{Report: *certs.NewReport("ApplyReport"), dryRun: o.DryRun}
	plan.DryRun = !o.DryRun.Writes()
	err = c.planCABundles(ctx, plan, o, func(a apiregistrationv1.APIService) (certs.Bundle, bool) {
		if o.KeepTrust {
			return certs.LenientBundle(a.Spec.CABundle).Merge(c.Time(), source.signers(c.Time())...), true
		}
		return source.Bundle, true
	})
	if err != nil {
		return nil, errors.Join(err, verdictOnly(plan.changes, source, c.Time()))
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

// Apply writes what the plan says: with the field manager certgen, every object first as a dry run of the server, so
// that a write that is refused leaves the cluster as it was. After an error the plan has the items before the one that
// could not be written.
func (c Client) Apply(ctx context.Context, plan *Plan) error {
	for _, dryRun := range []bool{true, false} {
		if plan.dryRun == DryRunClient || plan.dryRun == DryRunServer && !dryRun {
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

// PlanAndApply does both, and shows each plan before it is carried out: it plans again when an object changed
// meanwhile, as the status of an APIService does at any time. What was written before that is in the last plan too.
func (c Client) PlanAndApply(ctx context.Context, o Options, show func(*Plan)) (plan *Plan, err error) {
	done := []certs.Item{} // by tries that met a change too; never null in JSON
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

// Merge adds to items, in place, and says once of each object what was done about it: that it is right now is no news
// after it was changed.
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

// changedBackoff takes six seconds: each kube-apiserver writes the status of an APIService whose endpoints come or go,
// several times a second for a second or two.
var changedBackoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.6, Jitter: 0.5, Steps: 10}

// Changed is true for a write that was refused because the object had changed: what it is now decides. Another
// manager's field is another matter.
func Changed(err error) bool {
	return apierrors.IsConflict(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
}

// Client writes what certgen keeps in a cluster.
type Client struct{ *cluster.Cluster }

// Source is what a directory of certgen init holds for the cluster. The keys of CAs are not read.
type Source struct {
	service certs.Service
	Store   certs.Store
	Chain   certs.Bundle
	Bundle  certs.Bundle
	key     []byte
}

func (s *Source) file(name string) string { return s.Store.Path(certs.ServingDir, name) }

// signers are the CAs of the bundle that vouch for the certificate.
func (s *Source) signers(now time.Time) certs.Bundle {
	return slices.DeleteFunc(slices.Clone(s.Bundle), func(ca *x509.Certificate) bool {
		return VerifyServing(s.Chain, certs.Bundle{ca}, s.service, now) != nil
	})
}

// ReadSource reads the serving pair's certificate and its CAs, and has them verified as kube-aggregator will.
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
