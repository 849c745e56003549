// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	// permissionsPeriod is the interval of reviews while all permissions are granted. A revoked
	// permission leaves informers stale without any other sign. Missing permissions are reviewed
	// every second, so that a grant takes effect at once.
	permissionsPeriod = time.Minute
	// maxOutage is how long kube-apiserver may fail to respond before the server is not ready.
	// Another replica can take over meanwhile, or kube-apiserver can restart.
	maxOutage = 10 * time.Second
)

// permissions reviews the permissions that the server needs in the cluster. While one is missing,
// the server is not ready and rejects writes with the missing permission. The library alone would
// respond "not yet ready to handle request". While kube-apiserver does not respond, no request
// can be authorized, and the server is not ready.
type permissions struct {
	needed []need
	// missing is the result of the last review, or nil before the first.
	missing atomic.Pointer[[]string]
	// outage is nil while kube-apiserver responds.
	outage atomic.Pointer[outage]
	// requests triggers a review.
	requests chan struct{}
}

// need is an API and the client that uses it, because authentication and authorization can have
// their own kubeconfigs.
type need struct {
	requiredAPI
	client kubernetes.Interface
}

// outage is the time since which kube-apiserver has not responded, and the last error.
type outage struct {
	since time.Time
	err   error
}

// newPermissions returns the permissions for reviews and for the required APIs, except those of
// disabled parts.
func newPermissions(client kubernetes.Interface, off sets.Set[string], reviews ...need) *permissions {
	p := &permissions{needed: reviews, requests: make(chan struct{}, 1)}
	for _, api := range requiredAPIs {
		if !off.Has(api.part) {
			p.needed = append(p.needed, need{api, client})
		}
	}
	return p
}

// run reviews the permissions periodically until the context is done.
func (p *permissions) run(ctx context.Context) {
	for ctx.Err() == nil {
		p.review(ctx)
		period := permissionsPeriod
		if p.problem() != nil || p.outage.Load() != nil {
			period = time.Second
		}
		select {
		case <-ctx.Done():
		case <-p.requests:
		case <-time.After(wait.Jitter(period, 0.1)):
		}
	}
}

// review reviews each permission once. If kube-apiserver does not respond, the last result
// remains valid. Each request has its own timeout, because a kube-apiserver that responds slowly
// to all of them is not down.
func (p *permissions) review(ctx context.Context) {
	missing := []string{}
	for _, api := range p.needed {
		for _, verb := range api.verbs {
			allowed, err := api.allowed(ctx, verb)
			if err != nil {
				if ctx.Err() == nil {
					p.recordOutage(err)
				}
				return
			}
			p.outage.Store(nil)
			if !allowed {
				object := strings.TrimSpace(api.resource.GroupResource().String() + " " + api.name)
				if api.namespace != "" {
					object += " in the namespace " + api.namespace
				}
				missing = append(missing, fmt.Sprintf("%s %s (for %s)", verb, object, api.part))
			}
		}
	}
	if before := p.missing.Swap(&missing); before == nil || !slices.Equal(*before, missing) {
		if err := p.problem(); err != nil {
			klog.ErrorS(err, "Not ready")
		} else {
			klog.InfoS("All permissions are granted")
		}
	}
}

// allowed reports whether this server has the permission, according to a SelfSubjectAccessReview.
func (n need) allowed(ctx context.Context, verb string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	resource, subresource, _ := strings.Cut(n.resource.Resource, "/")
	review, err := n.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: n.resource.Group, Version: n.resource.Version, Resource: resource, Subresource: subresource,
				Namespace: n.namespace, Name: n.name, Verb: verb,
			}},
		}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// recordOutage records that kube-apiserver did not respond.
func (p *permissions) recordOutage(err error) {
	now := &outage{time.Now(), err}
	if before := p.outage.Load(); before != nil {
		now.since = before.since
	}
	p.outage.Store(now)
	klog.ErrorS(err, "Failed to review the permissions of this server")
}

// problem returns an error that lists the missing permissions, or nil if there are none.
func (p *permissions) problem() error {
	missing := p.missing.Load()
	if missing == nil {
		return fmt.Errorf("the permissions of this server have not been reviewed yet")
	}
	if len(*missing) == 0 {
		return nil
	}
	return fmt.Errorf("this server lacks permissions: %s; grant the rules in manifests/base/rbac.yaml and manifests/api",
		strings.Join(*missing, ", "))
}

// Name implements healthz.HealthChecker.
func (p *permissions) Name() string { return "permissions" }

// Check implements healthz.HealthChecker.
func (p *permissions) Check(*http.Request) error {
	if s := p.outage.Load(); s != nil && time.Since(s.since) > maxOutage {
		return fmt.Errorf("kube-apiserver has not responded since %s, so no request can be authorized: %w",
			s.since.UTC().Format(time.RFC3339), s.err)
	}
	return p.problem()
}

// requestReview triggers a review after a request to kube-apiserver failed. It does not block.
func (p *permissions) requestReview() {
	select {
	case p.requests <- struct{}{}:
	default:
	}
}
