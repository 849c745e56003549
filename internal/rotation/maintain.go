// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	utilwait "k8s.io/apimachinery/pkg/util/wait"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/apply"
)

// Maintain keeps the serving key pair and its CA in Secrets of the cluster. It finishes an
// unfinished rotation, creates what is missing, renews the key pair when a third of its lifetime
// is left, and sets the CA as the caBundle of every APIService of the Service. Then it replaces
// a CA that has a third of its lifetime left, as Run does. It does not change what is up to
// date, so jobs can run it at installation time and daily.
//
// It decides as certs.Init and PlanApply do and returns the same errors. For example, a trusted
// CA whose key is lost requires manual action. It holds the Lease of the Service, but not while
// it waits for APIServices. It ignores Options.Rotation.
func Maintain(ctx context.Context, c apply.Client, o Options) (*certs.Report, error) {
	o.Rotation, o.Observer, o.Now = Serving, c, c.Time
	if err := o.complete(); err != nil {
		return nil, err
	}
	if err := cluster.CheckClock(ctx, c); err != nil {
		return nil, err
	}
	report := renewal{certs.NewReport("RenewReport")}
	if o.Within > 0 {
		err := c.Exclusive(ctx, o.Service, func(ctx context.Context) error {
			_, err := report.maintain(ctx, c, o)
			return err
		})
		if err == nil {
			err = waitForAPIServices(ctx, c, o)
		}
		if err != nil {
			return report.Report, err
		}
	}
	return report.Report, c.Exclusive(ctx, o.Service, func(ctx context.Context) error {
		apis, err := report.maintain(ctx, c, o)
		if err != nil {
			return err
		}
		return report.rotateDueCA(ctx, o, apis)
	})
}

// maintain decides in memory: a Secret is changed only to store the result of certs.Init. The CA
// is stored before anything trusts it, and it is trusted everywhere before its certificates are
// served. The report keeps the actions of an earlier pass.
func (r renewal) maintain(ctx context.Context, c apply.Client, o Options) (apis bool, err error) {
	store, err := openSecrets(ctx, o)
	if err != nil {
		return false, err
	}
	if o.ForceConflicts { // before resuming a rotation that another field manager blocked
		taken, err := c.TakeOverCABundles(ctx, o.Service)
		if r.Items = apply.Merge(r.Items, taken...); err != nil {
			return false, err
		}
	}
	if state, err := ReadState(store, Serving); err != nil {
		return false, err
	} else if state.Unfinished() {
		if err := r.resume(ctx, c, o, store, state); err != nil {
			return false, err
		}
	}
	draft := &certs.Memory{Sets: maps.Clone(store.Sets), Name: store.path}
	made, err := certs.Init(ctx, certs.InitOptions{
		Store: draft, Service: o.Service, With: []string{}, KeyType: o.KeyType, Lifetime: o.Lifetime,
		Signer: o.Signer, Now: o.Now,
	})
	if err != nil {
		return false, allowNewCA(ctx, c, err, o)
	}
	// Third-party CAs stay trusted next to ours. A new CA next to a trusted one requires manual
	// consent, because the key of the trusted one may be lost.
	bring := apply.Options{Service: o.Service, Store: draft, Secret: o.Secret,
		KeepTrust: made.Items[0].Action == certs.Kept, ForceConflicts: o.ForceConflicts}
	if _, err := c.PlanApply(ctx, bring); err != nil { // return refusals before anything is stored
		if !bring.KeepTrust {
			err = fmt.Errorf("%w; %s", err, newCA(ctx, c, o))
		}
		return false, err
	}
	if err := store.Write(certs.ServingCADir, draft.Sets[certs.ServingCADir]); err != nil {
		return false, err
	}
	ca, pair := made.Items[0], made.Items[1]
	ca.Certificate, pair.Certificate = nil, nil // a later rotation may replace them
	r.Items = apply.Merge(r.Items, ca)
	applied, err := c.PlanAndApply(ctx, bring, func(*apply.Plan) {})
	if applied == nil {
		return false, err
	}
	for _, item := range applied.Items {
		// the key pair is stored, and this is the reason
		if item.Path == pair.Path && (pair.Action != certs.Kept || item.Action == certs.Kept) {
			pair.Notes = append(pair.Notes, item.Notes...)
			item = pair
		}
		r.Items = apply.Merge(r.Items, item)
	}
	return len(applied.Items) > 1, err // the Secret, preceded by the APIServices
}

// resume finishes an unfinished rotation. An APIService that was recreated meanwhile gets the
// CAs in the Secret.
func (r renewal) resume(ctx context.Context, c apply.Client, o Options, store *secrets, state *State) error {
	if cas := certs.LenientBundle(store.Sets[certs.ServingDir][certs.BundleFile].Data).Merge(o.Now()); len(cas) > 0 {
		filled, err := c.FillCABundles(ctx, o.Service, cas)
		r.Items = apply.Merge(r.Items, filled...)
		if err != nil {
			return err
		}
	}
	err := r.end(ctx, o.held(store, state.Rotation), state)
	ca, readErr := certs.ReadCertificate(store, certs.ServingCADir)
	if err != nil && readErr == nil && o.Now().After(ca.NotAfter) {
		return fmt.Errorf("%w; the CA expired at %s; %s", err, ca.NotAfter.UTC().Format(time.RFC3339), newCA(ctx, c, o))
	}
	return err
}

func (r renewal) changed(path string) bool {
	return slices.ContainsFunc(r.Items, func(item certs.Item) bool {
		return item.Path == path &&
			item.Action != certs.Kept
	})
}

// rotateDueCA replaces a CA that has a third of its lifetime left and whose key is in the
// Secret. It requires that the stored certificate is served everywhere, so a run that stored a
// certificate leaves the rotation to the next run. If no API trusts the CA, there is nothing to
// rotate.
func (r renewal) rotateDueCA(ctx context.Context, o Options, apis bool) error {
	store, err := openSecrets(ctx, o)
	if err != nil {
		return err
	}
	ca, err := certs.ReadCertificate(store, certs.ServingCADir)
	if err != nil || !o.Now().After(certs.RenewAt(ca)) || !store.hasCAKey() || !apis ||
		r.changed(store.Path(certs.ServingDir)) {
		return err
	}
	why := fmt.Sprintf("less than a third of the lifetime was left (until %s)", ca.NotAfter.UTC().Format(time.RFC3339))
	return r.rotate(ctx, o.held(store, ServingCA), store.Path(certs.ServingCADir), why)
}

// held returns the options of a rotation under the Lease that Maintain holds.
func (o Options) held(store *secrets, rotation string) Options {
	o.Rotation, o.store, o.leased = rotation, store, true
	if rotation != Serving {
		o.Signer = nil
	}
	return o
}

// newCA returns a hint with the commands that remove the old CA; certgen renew then creates a
// new one.
func newCA(ctx context.Context, c apply.Client, o Options) string {
	commands := []string{
		fmt.Sprintf("kubectl patch secret %s --namespace %s --type merge --patch '{\"data\":null}'", o.CASecret,
			o.Service.Namespace),
		fmt.Sprintf("kubectl delete secret %s --namespace %s --ignore-not-found", o.Secret, o.Service.Namespace),
	}
	if ours, err := c.APIServices(ctx, o.Service); err == nil {
		for _, a := range ours {
			commands = append(commands,
				fmt.Sprintf("kubectl patch apiservice %s --type merge --patch '{\"spec\":{\"caBundle\":null}}'",
					a.Name))
		}
	}
	return "for a new CA, remove the old one (the API does not respond until the new CA is in use): " +
		strings.Join(commands, " && ")
}

// allowNewCA adds the hint of newCA to the errors that a new CA resolves.
func allowNewCA(ctx context.Context, c apply.Client, err error, o Options) error {
	var errs []error
	for _, err := range certs.Flatten(err) {
		if refused, ok := errors.AsType[*certs.RefusedError](err); ok && refused.OnlyNewCA {
			here := &certs.RefusedError{Path: refused.Path, Reason: refused.Reason}
			err = fmt.Errorf("%w; restore it from a backup, or name the signer that holds the key with --signer; %s",
				here, newCA(ctx, c, o))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// waitForAPIServices returns nil once all o.APIServices exist and have the Service as their
// backend. It waits up to o.Within.
func waitForAPIServices(ctx context.Context, c apply.Client, o Options) error {
	var missing []string
	var asked error
	err := utilwait.PollUntilContextTimeout(ctx, defaultPoll, o.Within, true, func(ctx context.Context) (bool, error) {
		ours, err := c.APIServices(ctx, o.Service)
		missing = slices.DeleteFunc(slices.Clone(o.APIServices), func(name string) bool {
			return slices.ContainsFunc(ours, func(a apiregistrationv1.APIService) bool { return a.Name == name })
		})
		asked = err
		return err == nil && len(missing) == 0, nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf(
			"expected APIServices with the Service %s/%s as their backend within %s, missing: %v; "+
				"the Secrets are up to date: register the API and run the command again", o.Service.Namespace,
			o.Service.Name, o.Within, missing), asked)
	}
	return nil
}
