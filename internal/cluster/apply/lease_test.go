// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
)

var leased = certs.Service{Name: "widgets", Namespace: "demo"}

// TestLeaseReleased: the next process does not need to wait until the Lease expires.
func TestLeaseReleased(t *testing.T) {
	c := Client{&cluster.Cluster{Core: fake.NewClientset()}}
	for i := range 3 {
		began := time.Now()
		if err := c.Exclusive(t.Context(), leased, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > leaseDuration/2 {
			t.Errorf("run %d waited for %s", i, took)
		}
	}
}

// TestLeaseOutage: an outage of kube-apiserver for the duration of a restart does not cause a
// loss of the Lease. During a longer outage, the context is cancelled before another process can
// acquire the Lease.
func TestLeaseOutage(t *testing.T) {
	for outage, want := range map[time.Duration]error{35 * time.Second: nil, 2 * leaseDuration: errLeaseLost} {
		t.Run(outage.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core := fake.NewClientset()
				var broken atomic.Bool
				core.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
					return broken.Load(), nil, errors.New("no response")
				})
				err := Client{&cluster.Cluster{Core: core}}.Exclusive(t.Context(), leased,
					func(ctx context.Context) error {
						broken.Store(true)
						began := time.Now()
						time.AfterFunc(outage, func() { broken.Store(false) })
						select {
						case <-ctx.Done():
						case <-time.After(outage + 2*leaseDuration):
							return nil
						}
						if took := time.Since(began); took >= leaseDuration {
							t.Errorf("it was reported after %s, when another process could have it", took)
						}
						return context.Cause(ctx)
					})
				if !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			})
		})
	}
}

// TestLeaseHeldByAnother: Exclusive waits for a Lease that another process holds and then returns
// an error without ever calling do.
func TestLeaseHeldByAnother(t *testing.T) {
	t.Parallel()
	c := Client{&cluster.Cluster{Core: fake.NewClientset()}}
	err := c.Exclusive(t.Context(), leased, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return c.Exclusive(ctx, leased, func(context.Context) error { t.Error("it was called"); return nil })
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that it waited", err)
	}
}

// TestLeaseForbidden: a missing permission is reported immediately, before do is called.
func TestLeaseForbidden(t *testing.T) {
	for _, verb := range []string{"get", "create", "update"} {
		core := fake.NewClientset()
		core.PrependReactor(verb, "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(coordinationv1.Resource("leases"), LeaseName(leased),
				errors.New("no "+verb))
		})
		err := Client{&cluster.Cluster{Core: core}}.Exclusive(t.Context(), leased,
			func(context.Context) error { t.Error("it was called"); return nil })
		if err == nil || !strings.Contains(err.Error(), "no "+verb+"; grant get, create and update") {
			t.Errorf("without %s: got %v", verb, err)
		}
	}
}
