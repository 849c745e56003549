// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/pkg/registry/subresource"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// TestKindAuthorize: a change of a field that needs its own verb is rejected with 403 by every
// subresource that would store it, and is not authorized where it would not be stored.
func TestKindAuthorize(t *testing.T) {
	kind := widgets
	kind.Authorize = func(ctx context.Context, a authorizer.Authorizer, w, old *v1.Widget) error {
		if old != nil && *old.Spec.Replicas == *w.Spec.Replicas && old.Status.ReadyReplicas == w.Status.ReadyReplicas {
			return nil
		}
		return subresource.Authorize(ctx, a, authorizer.AttributesRecord{Verb: "promote", APIGroup: "workshop.example.com",
			Resource: "widgets", Namespace: w.Namespace, Name: w.Name})
	}
	mayPromote := func(who string) bool { return who == "promoter" }
	may := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision,
		string, error) {
		if a.GetVerb() == "promote" && a.GetNamespace() == "demo" && mayPromote(a.GetUser().GetName()) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	d := mustDescribe(t, kind)
	main, status := newRules(d), statusRules[*v1.Widget]{newRules(d), Status[*v1.Widget]{}}
	var custom *genericregistry.Store
	CustomSubresource[*v1.Widget](func(s *genericregistry.Store, _ authorizer.Authorizer) rest.Storage {
		custom = s
		return nil
	}).newStorage(d, &genericregistry.Store{BeginUpdate: d.authorizeUpdate(may, main)}, may, "custom")
	scaled := func(w *v1.Widget) { w.Spec.Replicas = new(int32(9)) }
	observed := func(w *v1.Widget) { w.Status.ReadyReplicas = 9 }
	for name, tc := range map[string]struct {
		write     func(ctx context.Context, obj, old runtime.Object) error
		change    func(*v1.Widget)
		forbidden bool
	}{
		"create": {func(ctx context.Context, obj, _ runtime.Object) error {
			_, err := d.authorizeCreate(may, main)(ctx, obj, &metav1.CreateOptions{})
			return err
		}, scaled, true},
		"update":              {updating(d, may, main), scaled, true},
		"update of another":   {updating(d, may, main), func(w *v1.Widget) { w.Labels = nil }, false},
		"update of a status":  {updating(d, may, main), observed, false},
		"status":              {updating(d, may, status), observed, true},
		"status, with a spec": {updating(d, may, status), scaled, false},
		"custom subresource": {func(ctx context.Context, obj, old runtime.Object) error {
			_, err := custom.BeginUpdate(ctx, obj, old, &metav1.UpdateOptions{})
			return err
		}, observed, true},
		"action": {updating(d, may, actionRules[*v1.Widget]{main}), observed, true},
	} {
		for _, who := range []string{"promoter", "other"} {
			ctx := genericapirequest.WithUser(inVersion(t, "v1"), &user.DefaultInfo{Name: who})
			obj, old := storedWidget(tc.change), storedWidget(nil)
			err := tc.write(ctx, obj, old)
			if want := tc.forbidden && !mayPromote(who); apierrors.IsForbidden(err) != want || !want && err != nil {
				t.Errorf("%s by %s: got the error %v, want it forbidden: %t", name, who, err, want)
			}
		}
	}
	kind.Authorize = nil
	if d := mustDescribe(t, kind); d.authorizeUpdate(may, main) != nil || d.authorizeCreate(may, main) != nil {
		t.Error("a kind without Authorize copies its objects")
	}
}

func updating(d *description[*v1.Widget], a authorizer.Authorizer,
	strategy interface {
		PrepareForUpdate(ctx context.Context, obj, old runtime.Object)
	}) func(ctx context.Context, obj, old runtime.Object) error {
	return func(ctx context.Context, obj, old runtime.Object) error {
		_, err := d.authorizeUpdate(a, strategy)(ctx, obj, old, &metav1.UpdateOptions{})
		return err
	}
}
