// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
)

// renewal is a report with an item for each completed rotation, each checked key pair and, for
// Maintain, each caBundle.
type renewal struct{ *certs.Report }

// end finishes an unfinished rotation in its current direction.
func (r renewal) end(ctx context.Context, opts Options, state *State) error {
	path := opts.store.Path(StateSet(state.Rotation), StateFile)
	opts.resumeOnly = true // another process may have finished it meanwhile
	if !state.Aborting {
		return r.rotate(ctx, opts, path, "completed an interrupted rotation: "+state.Rotation)
	}
	if _, err := Abort(ctx, opts); err != nil {
		return err
	}
	r.Items = append(r.Items, certs.Item{Path: path, Action: certs.Kept, Reason: "completed an interrupted abort: " +
		state.Rotation})
	return nil
}

// Renew finishes unfinished rotations and then rotates the leaves that are due, which is when
// less than a third of their lifetime is left, as in certs.Init. It is intended for a daily job.
// It ignores Options.Rotation. Without an Observer, it writes files and observes nothing. It
// returns the errors of Run, and the report contains the actions before an error. If the
// rotation of the serving certificates is refused or blocked, Renew still renews the front-proxy
// certificates, and vice versa.
func Renew(ctx context.Context, opts Options) (*certs.Report, error) {
	opts.Rotation = Serving
	if err := opts.complete(); err != nil {
		return nil, err
	}
	if opts.Observer == nil {
		opts.Hold = 0 // the hold covers effects that cannot be observed, after observable ones
	} else if err := cluster.CheckClock(ctx, opts.Observer); err != nil { // the clock determines what is due
		return nil, err
	}
	report := renewal{certs.NewReport("RenewReport")}
	var errs []error
	for _, rotation := range []string{Serving, ProxyClient} {
		opts.Rotation = rotation
		err := report.renewAll(ctx, opts)
		errs = append(errs, err)
		if _, blocked := errors.AsType[*BlockedError](err); err != nil && !blocked && !isRefusal(err) {
			break
		}
	}
	return report.Report, errors.Join(errs...)
}

// renewAll finishes a rotation of the leaves or of their CA and then renews the leaves.
func (r renewal) renewAll(ctx context.Context, opts Options) error {
	state, err := ReadState(opts.store, opts.Rotation)
	if err != nil {
		return err
	}
	if state.Unfinished() {
		ending := opts
		if ending.Rotation = state.Rotation; ending.Rotation != Serving {
			ending.Signer = nil // it signs with the existing CA
		}
		if err := r.end(ctx, ending, state); err != nil {
			return err
		}
	}
	// An explicitly named directory must contain a key pair. The default directory need not, if
	// the front proxy is not managed here. kubeadm renews its own files.
	if opts.Rotation == ProxyClient && opts.otherDirs == nil {
		if files, err := certs.Dir(opts.Dir).Read(certs.FrontProxyClientDir); err == nil && files == nil {
			return nil
		}
	}
	// All leaves have the same CA and are rotated together when one of them is due.
	p := newProcedure(opts)
	var kept []certs.Item
	for _, dir := range p.leafDirs {
		why, due, err := p.due(dir)
		if err != nil {
			return err
		}
		if due {
			return r.rotate(ctx, p.opts, p.opts.store.Path(dir), why)
		}
		kept = append(kept, certs.Item{Path: p.opts.store.Path(dir), Action: certs.Kept, Reason: why})
	}
	r.Items = append(r.Items, kept...)
	return nil
}

func (r renewal) rotate(ctx context.Context, opts Options, path, why string) error {
	if state, err := Run(ctx, opts); err != nil || state == nil {
		return err
	}
	r.Items = append(r.Items, certs.Item{Path: path, Action: certs.Replaced, Reason: why})
	return nil
}

// due decides as certs.Init does: a leaf that expires with its CA is not renewed, because a new
// one would expire at the same time.
func (p *procedure) due(dir string) (why string, due bool, err error) {
	leaf, leafErr := certs.ReadCertificate(p.opts.store, dir)
	ca, caErr := certs.ReadCertificate(p.opts.store, p.caDir)
	if err := errors.Join(leafErr, caErr); err != nil {
		return "", false, err
	}
	now := p.opts.Now()
	until := leaf.NotAfter.UTC().Format(time.RFC3339)
	caDue := ""
	if now.After(certs.RenewAt(ca)) {
		caDue = fmt.Sprintf("; the CA in %s is due too (until %s): rotate it", p.opts.store.Path(p.caDir),
			ca.NotAfter.UTC().Format(time.RFC3339))
	}
	switch {
	case now.Before(certs.RenewAt(leaf)):
		return fmt.Sprintf("not due before %s%s", certs.RenewAt(leaf).UTC().Format(time.RFC3339), caDue), false,
			nil
	case !leaf.NotAfter.Before(ca.NotAfter):
		return "due for renewal, but a new certificate would not be valid longer: it expires with its CA" + caDue, false, nil
	}
	return fmt.Sprintf("less than a third of the lifetime was left (until %s)%s", until, caDue), true, nil
}
