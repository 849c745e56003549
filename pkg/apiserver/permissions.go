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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// permissionsPeriod is how often granted permissions are looked at again: a rule that is taken away leaves informers
// stale without any other sign. Missing ones are looked at every second, so that a grant takes effect at once.
const permissionsPeriod = time.Minute

// permissions watches over the rights that the server needs in the cluster. While one is missing the server is not ready and
// refuses writes, naming the rule: the library would answer "not yet ready to handle request" and nothing else.
type permissions struct {
	client kubernetes.Interface
	needed []watched
	// missing is what the last look found; a nil pointer means that nobody looked yet.
	missing atomic.Pointer[[]string]
}

func newPermissions(client kubernetes.Interface, off sets.Set[string]) *permissions {
	p := &permissions{client: client}
	for _, api := range watchedAPIs {
		if !off.Has(api.part) {
			p.needed = append(p.needed, api)
		}
	}
	return p
}

// run looks until the context ends.
func (p *permissions) run(ctx context.Context) {
	for ctx.Err() == nil {
		p.look(ctx)
		period := permissionsPeriod
		if p.problem() != nil {
			period = time.Second
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.Jitter(period, 0.1)):
		}
	}
}

// look asks for every right once. An answer that does not come counts as the last one: whether kube-apiserver can be
// reached is the business of other checks.
func (p *permissions) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	missing := []string{}
	for _, api := range p.needed {
		resource, subresource, _ := strings.Cut(api.resource.Resource, "/")
		for _, verb := range api.verbs {
			review, err := p.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: api.resource.Group, Version: api.resource.Version, Resource: resource, Subresource: subresource, Verb: verb,
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				if ctx.Err() == nil {
					klog.ErrorS(err, "Asking for our own permissions")
				}
				return
			}
			if !review.Status.Allowed {
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
func (p *permissions) Check(*http.Request) error { return p.problem() }

// guardWrites answers 503 to writes while a permission is missing: admission could not be applied to them.
func (p *permissions) guardWrites(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	writes := sets.New("create", "update", "patch", "delete", "deletecollection")
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		err := p.problem()
		if err == nil || !ok || !info.IsResourceRequest || !writes.Has(info.Verb) {
			handler.ServeHTTP(w, req)
			return
		}
		gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
		responsewriters.ErrorNegotiated(apierrors.NewServiceUnavailable(err.Error()), serializer, gv, w, req)
	})
}
