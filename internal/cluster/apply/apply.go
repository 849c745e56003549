// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
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

// Options say what to bring from a directory of certs.Init into a cluster.
type Options struct {
	Service certs.Service
	Dir     string      // directory as certgen init made it
	Store   certs.Store // in the place of Dir
	Secret  string      // name of the Secret for the serving pair, in the namespace of the Service; empty means none
	DryRun  DryRun      // empty means DryRunNone
	// ForceConflicts takes fields from other managers. An injector would write its own caBundle again, so it does not help against that.
	ForceConflicts bool
	// ClearInsecure sets insecureSkipTLSVerify to false in the same write.
	ClearInsecure bool
	// KeepTrust leaves the CAs that caBundles hold besides, which another rotation or somebody else may need.
	KeepTrust bool
	// ReplaceTrust allows what can break connections: a CA that is trusted now and will not be, or a certificate that
	// is not trusted yet.
	ReplaceTrust bool
}

// Action is what is done to an object.
type Action string

// The actions.
const (
	ApplyCreate    Action = "create"
	ApplyChange    Action = "change"
	ApplyUnchanged Action = "unchanged"
)

// Report is the plan of an apply and, as far as Done says so, what became of it.
type Report struct {
	APIVersion  string    `json:"apiVersion"`
	Kind        string    `json:"kind"` // ApplyReport
	GeneratedAt time.Time `json:"generatedAt"`
	Service     string    `json:"service"` // NAMESPACE/NAME
	DryRun      DryRun    `json:"dryRun"`
	Items       []Item    `json:"items"` // in the order of the writes: trust before identity
	Notes       []string  `json:"notes,omitempty"`
}

// Item is one object.
type Item struct {
	Kind      string   `json:"kind"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
	Action    Action   `json:"action"`
	Reason    string   `json:"reason"`
	SHA256    []string `json:"sha256"` // of the CAs in the caBundle, or of the certificate in the Secret
	Done      bool     `json:"done"`   // it was written, or tried with DryRunServer; false for what is unchanged

	write func(ctx context.Context, dryRun bool) error
}

// Validate returns all that is wrong with the options, as *certs.InvalidError joined by errors.Join.
func (o Options) Validate() error {
	errs := []error{o.Service.Validate()}
	if o.Dir == "" && o.Store == nil {
		errs = append(errs, &certs.InvalidError{Field: "dir", Reason: "expected the directory that certgen init made, such as pki"})
	}
	if problems := validation.IsDNS1123Subdomain(o.Secret); o.Secret != "" && len(problems) > 0 {
		errs = append(errs, &certs.InvalidError{Field: "secret", Value: o.Secret, Reason: "expected the Secret's name: " + problems[0]})
	}
	if o.DryRun != "" && !slices.Contains([]DryRun{DryRunNone, DryRunClient, DryRunServer}, o.DryRun) {
		errs = append(errs, &certs.InvalidError{Field: "dry-run", Value: string(o.DryRun), Reason: "expected none, client or server"})
	}
	return errors.Join(errs...)
}

// PlanApply reads the directory and the cluster and says what Apply will write: the caBundle of every APIService of the
// Service, and the serving Secret. It writes nothing. Whatever is in the way of one object refuses the plan as a whole:
// *certs.InvalidError, *certs.RefusedError for files, *OwnedError and others for the cluster, joined by errors.Join.
func (c Client) PlanApply(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.DryRun == "" {
		o.DryRun = DryRunNone
	}
	if o.Store == nil {
		o.Store = certs.Dir(o.Dir)
	}
	source, err := ReadSource(o.Store, o.Service, c.Time())
	if err == nil && o.Secret != "" && o.Dir != "" {
		err = refuseFaulty(o.Store.Path(certs.ServingDir), c.Time())
	}
	if err != nil {
		return nil, err
	}
	if err := cluster.CheckClock(ctx, c); err != nil {
		return nil, err
	}
	report := &Report{
		APIVersion: certs.APIVersion, Kind: "ApplyReport", GeneratedAt: c.Time().UTC().Truncate(time.Second),
		Service: o.Service.Namespace + "/" + o.Service.Name, DryRun: o.DryRun, Items: []Item{},
	}
	changes, err := c.planCABundles(ctx, o, func(a apiregistrationv1.APIService) certs.Bundle {
		if o.KeepTrust {
			return certs.LenientBundle(a.Spec.CABundle).Merge(c.Time(), source.Bundle...)
		}
		return source.Bundle
	})
	if err != nil {
		return nil, errors.Join(err, verdictOnly(changes, source, c.Time()))
	}
	for _, change := range changes {
		report.Items = append(report.Items, change.Item)
	}
	var stored *corev1.Secret
	if o.Secret != "" {
		var item Item
		if item, stored, err = c.planSecret(ctx, o, source); err != nil {
			return nil, err
		}
		report.Items = append(report.Items, item)
	}
	if !o.ReplaceTrust {
		if err := c.refuseBreaking(changes, stored, source); err != nil {
			return nil, err
		}
	}
	if len(changes) == 0 {
		text := fmt.Sprintf("no APIService has the Service %s as its backend; run this again when the API is registered", report.Service)
		if o.Secret == "" {
			return nil, errors.New("plan: " + text)
		}
		report.Notes = append(report.Notes, text)
	}
	return report, nil
}

// Apply writes what the plan says: with the field manager certgen, every object first as a dry run of the server, so that
// a write that is refused leaves the cluster as it was. After an error, Done tells which objects were written.
func (c Client) Apply(ctx context.Context, plan *Report) error {
	if plan.DryRun == DryRunClient {
		return nil
	}
	for _, dryRun := range []bool{true, false} {
		if !dryRun && plan.DryRun == DryRunServer {
			return nil
		}
		var errs []error
		for i := range plan.Items {
			item := &plan.Items[i]
			if item.Action == ApplyUnchanged {
				continue
			}
			err := item.write(ctx, dryRun)
			item.Done = err == nil && dryRun == (plan.DryRun == DryRunServer)
			if errs = append(errs, err); err != nil && !dryRun {
				break
			}
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// PlanAndApply does both, and shows each plan before it is carried out: it plans again when an object changed meanwhile, as the status of an
// APIService does at any time.
func (c Client) PlanAndApply(ctx context.Context, o Options, show func(*Report)) (plan *Report, err error) {
	err = retry.OnError(retry.DefaultBackoff, Changed, func() error {
		if plan, err = c.PlanApply(ctx, o); err != nil {
			return err
		}
		show(plan)
		return c.Apply(ctx, plan)
	})
	return plan, err
}

// Changed is true for a write that was refused because the object had changed: what it is now decides. Another manager's field is another matter.
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
}

func (s *Source) file(name string) string { return s.Store.Path(certs.ServingDir, name) }

// ReadSource reads the serving pair's certificate and its CAs, and has them verified as kube-aggregator will.
func ReadSource(store certs.Store, s certs.Service, now time.Time) (*Source, error) {
	src := &Source{service: s, Store: store}
	files, err := store.Read(certs.ServingDir)
	if err != nil {
		return nil, err
	}
	certFile := src.file(certs.CertFile)
	if _, ok := files[certs.CertFile]; !ok {
		return nil, &certs.RefusedError{Path: certFile, Reason: "expected the serving certificate that certgen init made, found none; give its directory"}
	}
	if src.Chain, err = certs.ParseBundle(files[certs.CertFile].Data); err != nil {
		return nil, &certs.RefusedError{Path: certFile, Reason: err.Error()}
	}
	if src.Bundle, err = certs.ParseCAs(files[certs.BundleFile].Data, src.file(certs.BundleFile), now); err != nil {
		return nil, err
	}
	if err := VerifyServing(src.Chain, src.Bundle, s, now); err != nil {
		return nil, &certs.RefusedError{Path: certFile, Reason: fmt.Sprintf("kube-aggregator would refuse it: %v; issue it again: "+
			"certgen init --service %s --namespace %s --dir %s", err, s.Name, s.Namespace, store.Path())}
	}
	return src, nil
}
