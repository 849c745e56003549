// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
)

// The times of the Lease. An outage of kube-apiserver during a restart, half a minute for a
// single instance, does not cause a loss of the Lease. A killed process keeps it for
// leaseDuration. A process that finds it held waits only a little longer than that, because a
// rotation can take days.
const (
	leaseDuration = 45 * time.Second
	leaseRenew    = 40 * time.Second
	leaseRetry    = 2 * time.Second
	leaseWait     = leaseDuration + 10*time.Second
)

var errLeaseLost = errors.New("the Lease was lost: kube-apiserver did not respond in time, or another client took it")

// LeaseName returns the name of the Lease, in the namespace of the Service, that any process
// must hold to change the Service's certificates.
func LeaseName(s certs.Service) string { return s.Name + "-certgen" }

// Exclusive calls do while this process holds the Lease of the Service. The context of do is
// cancelled when the Lease is lost, before another process can acquire it. If another process
// keeps the Lease, Exclusive returns *certs.RefusedError.
func (c Client) Exclusive(ctx context.Context, s certs.Service, do func(context.Context) error) error {
	if err := c.mayLease(ctx, s); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read host name: %w", err)
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: LeaseName(s)}, Client: c.Core.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}
	leading := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: leaseRenew, RetryPeriod: leaseRetry,
		Name: LeaseName(s),
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(held context.Context) { leading <- held },
			OnStoppedLeading: func() {}},
	})
	if err != nil {
		return fmt.Errorf("prepare Lease: %w", err)
	}
	// Not cancelled with ctx: the Lease is kept until do has returned.
	electing, stop := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	var elections sync.WaitGroup
	elections.Go(func() { elector.Run(electing) })
	defer release(lock) // with ReleaseOnCancel, do would continue during the attempt to release a lost Lease
	defer elections.Wait()
	defer stop()
	waiting, enough := context.WithTimeout(ctx, leaseWait)
	defer enough()
	select {
	case held := <-leading:
		doing, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(held, func() { cancel(errLeaseLost) })()
		return do(doing)
	case <-waiting.Done():
	}
	if ctx.Err() != nil {
		return fmt.Errorf("wait for Lease %s/%s: %w", s.Namespace, LeaseName(s), context.Cause(ctx))
	}
	return &certs.RefusedError{Path: fmt.Sprintf("Lease %s/%s", s.Namespace, LeaseName(s)), Reason: fmt.Sprintf(
		"expected exclusive access, found it held by %s, which changes certificates of this Service; run the command "+
			"again when that has exited", elector.GetLeader())}
}

// release releases the Lease if this process still holds it. Otherwise other processes can
// acquire it after it expires.
func release(lock *resourcelock.LeaseLock) {
	ctx, cancel := context.WithTimeout(context.Background(), leaseRetry)
	defer cancel()
	if record, _, err := lock.Get(ctx); err == nil && record.HolderIdentity == lock.Identity() {
		record.HolderIdentity, record.LeaseDurationSeconds = "", 1
		_ = lock.Update(ctx, *record)
	}
}

// mayLease returns errors that the elector would only log repeatedly: a missing permission or
// namespace. It creates an unheld Lease if none exists, because the permission to update can
// only be checked with an existing object.
func (c Client) mayLease(ctx context.Context, s certs.Service) error {
	leases := c.Core.CoordinationV1().Leases(s.Namespace)
	lease, err := leases.Get(ctx, LeaseName(s), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseName(s), Namespace: s.Namespace}}
		lease, err = leases.Create(ctx, lease, metav1.CreateOptions{FieldManager: cluster.FieldManager})
	}
	if err == nil {
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll},
			FieldManager: cluster.FieldManager})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
		if apierrors.IsForbidden(err) {
			err = fmt.Errorf("%w; grant get, create and update", err)
		}
		return fmt.Errorf("take Lease %s/%s, which excludes other writers of the certificates: %w", s.Namespace,
			LeaseName(s), err)
	}
	return nil
}
