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
	// permissionsPeriod is how often granted permissions are looked at again: a rule that is taken away leaves informers
	// stale without any other sign. Missing ones are looked at every second, so that a grant takes effect at once.
	permissionsPeriod = time.Minute
	// silenceLimit is how long kube-apiserver may give no answer before the server is not ready: time for another replica of it
	// to take over, or for a restart.
	silenceLimit = 10 * time.Second
)

// permissions watches over the rights that the server needs in the cluster. While one is missing the server is not ready and
// refuses writes, naming the rule: the library would answer "not yet ready to handle request" and nothing else. While
// kube-apiserver gives no answer at all, nobody can be authorized, and the server is not ready either.
type permissions struct {
	needed []need
	// missing is what the last look found; a nil pointer means that nobody looked yet.
	missing atomic.Pointer[[]string]
	// silence is nil while kube-apiserver answers.
	silence atomic.Pointer[silence]
	// doubt has a value when somebody else got no answer, and it is time to look.
	doubt chan struct{}
}

// need is an API and the client that uses it: reviews may have a kubeconfig of their own.
type need struct {
	requiredAPI
	client kubernetes.Interface
}

// silence is since when there was no answer, and why.
type silence struct {
	since time.Time
	err   error
}

// newPermissions covers the required APIs, except those of parts that are off, and the reviews.
func newPermissions(client kubernetes.Interface, off sets.Set[string], reviews ...need) *permissions {
	p := &permissions{needed: reviews, doubt: make(chan struct{}, 1)}
	for _, api := range requiredAPIs {
		if !off.Has(api.part) {
			p.needed = append(p.needed, need{api, client})
		}
	}
	return p
}

// run looks until the context ends.
func (p *permissions) run(ctx context.Context) {
	for ctx.Err() == nil {
		p.look(ctx)
		period := permissionsPeriod
		if p.problem() != nil || p.silence.Load() != nil {
			period = time.Second
		}
		select {
		case <-ctx.Done():
		case <-p.doubt:
		case <-time.After(wait.Jitter(period, 0.1)):
		}
	}
}

// look asks for every right once. While no answer comes, the last one counts. Each question has a
// time of its own: a kube-apiserver that is slow to answer all of them is not silent.
func (p *permissions) look(ctx context.Context) {
	missing := []string{}
	for _, api := range p.needed {
		for _, verb := range api.verbs {
			allowed, err := api.allowed(ctx, verb)
			if err != nil {
				if ctx.Err() == nil {
					p.unanswered(err)
				}
				return
			}
			p.silence.Store(nil)
			if !allowed {
				missing = append(missing, fmt.Sprintf("%s %s (for %s)", verb, api.resource.GroupResource(), api.part))
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

// allowed asks kube-apiserver whether this server has a right.
func (n need) allowed(ctx context.Context, verb string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	resource, subresource, _ := strings.Cut(n.resource.Resource, "/")
	review, err := n.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
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

// unanswered notes that kube-apiserver did not answer, and since when it does not.
func (p *permissions) unanswered(err error) {
	now := &silence{time.Now(), err}
	if before := p.silence.Load(); before != nil {
		now.since = before.since
	}
	p.silence.Store(now)
	klog.ErrorS(err, "Asking for our own permissions")
}

// problem returns what is missing, nil if nothing is.
func (p *permissions) problem() error {
	missing := p.missing.Load()
	if missing == nil {
		return fmt.Errorf("the permissions of this server were not checked yet")
	}
	if len(*missing) == 0 {
		return nil
	}
	return fmt.Errorf("this server may not: %s; grant it the rules of manifests/base/rbac.yaml", strings.Join(*missing, ", "))
}

// Name and Check make permissions a health check.
func (p *permissions) Name() string { return "permissions" }

// Check implements healthz.HealthChecker.
func (p *permissions) Check(*http.Request) error {
	if s := p.silence.Load(); s != nil && time.Since(s.since) > silenceLimit {
		return fmt.Errorf("kube-apiserver has given no answer since %s, so nobody can be authorized: %w", s.since.UTC().Format(time.RFC3339), s.err)
	}
	return p.problem()
}

// doubted is for others who got no answer from kube-apiserver: it is time to look whether it gives
// one at all.
func (p *permissions) doubted() {
	select {
	case p.doubt <- struct{}{}:
	default:
	}
}
