// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

func widgetJSON(namespace, name string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":"Widget","metadata":{"name":%q,"namespace":%q},"spec":{"model":"pendulum","replicas":2,"maxReplicas":5}}`,
		install.GroupVersions()[0], name, namespace)
}

func gadgetJSON(name string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":"Gadget","metadata":{"name":%q},"spec":{"purpose":"security"}}`,
		install.GroupVersions()[0], name)
}

var reviewJSON = fmt.Appendf(nil, `{"apiVersion":%q,"kind":"IdentityReview"}`, install.GroupVersions()[0])

func widgetsOf(namespace string) string { return current + "/namespaces/" + namespace + "/widgets" }

func newWidget(t *testing.T, e *envtest.Environment, namespace, name string) {
	t.Helper()
	admin(t, e).Must(t, http.MethodPost, widgetsOf(namespace), nil, widgetJSON(namespace, name))
}

func newGadget(t *testing.T, e *envtest.Environment, name string) {
	t.Helper()
	admin(t, e).Must(t, http.MethodPost, current+"/gadgets", nil, gadgetJSON(name))
}

// same returns the object at a path, to be sent back.
func same(path string) func(*testing.T) []byte {
	return func(t *testing.T) []byte { return admin(t, shared).Must(t, http.MethodGet, path, nil, nil).Body }
}

// copyOf returns the object at a path with another name, to be created.
func copyOf(path, name string) func(*testing.T) []byte {
	return func(t *testing.T) []byte {
		obj := &unstructured.Unstructured{}
		if err := json.Unmarshal(same(path)(t), &obj.Object); err != nil {
			t.Fatal(err)
		}
		obj.Object["metadata"] = map[string]any{"name": name}
		data, err := obj.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
}

// allow grants a user or a group permissions, in one namespace or in all, and returns when
// kube-apiserver applies them. The returned function revokes them, and returns when kube-apiserver
// applies that.
func allow(t *testing.T, e *envtest.Environment, subject rbacv1.Subject, namespace string,
	rules ...rbacv1.PolicyRule) (revoke func()) {
	t.Helper()
	rbac := e.Client(t).RbacV1()
	subject.APIGroup = rbacv1.GroupName
	role, err := rbac.ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "security-"}, Rules: rules},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	meta, ref := metav1.ObjectMeta{Name: role.Name}, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
		Name: role.Name}
	subjects := []rbacv1.Subject{subject}
	remove := func(ctx context.Context) error {
		return rbac.ClusterRoleBindings().Delete(ctx, role.Name, metav1.DeleteOptions{})
	}
	if namespace == "" {
		_, err = rbac.ClusterRoleBindings().
			Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects},
				metav1.CreateOptions{})
	} else {
		_, err = rbac.RoleBindings(namespace).
			Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects},
				metav1.CreateOptions{})
		remove = func(ctx context.Context) error {
			return rbac.RoleBindings(namespace).Delete(ctx, role.Name, metav1.DeleteOptions{})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	settle := func(want bool) {
		e.Eventually(t, fmt.Sprintf("permissions of %s: %t", subject.Name, want), envtest.WaitTimeout,
			func(ctx context.Context) error {
				for _, rule := range rules {
					got, err := allowed(ctx, t, e, subject, namespace, rule)
					if err != nil || got != want {
						return errors.Join(fmt.Errorf("%+v: %t", rule, got), err)
					}
				}
				return nil
			})
	}
	settle(true)
	return func() {
		if err := remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		settle(false)
	}
}

// allowed creates a SubjectAccessReview of the first verb and resource of a rule.
func allowed(ctx context.Context, t *testing.T, e *envtest.Environment, subject rbacv1.Subject, namespace string,
	rule rbacv1.PolicyRule) (bool, error) {
	t.Helper()
	spec := authorizationv1.SubjectAccessReviewSpec{User: subject.Name}
	if subject.Kind == rbacv1.GroupKind {
		spec = authorizationv1.SubjectAccessReviewSpec{User: "somebody", Groups: []string{subject.Name}}
	}
	if len(rule.NonResourceURLs) > 0 {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: rule.Verbs[0],
			Path: rule.NonResourceURLs[0]}
	} else {
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0],
		}
	}
	review, err := e.Client(t).AuthorizationV1().SubjectAccessReviews().
		Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// ofGroup returns the group of all users of a test.
func ofGroup(name string) rbacv1.Subject { return rbacv1.Subject{Kind: rbacv1.GroupKind, Name: name} }

func ofUser(name string) rbacv1.Subject { return rbacv1.Subject{Kind: rbacv1.UserKind, Name: name} }

// everything allows everything in the API group; everywhere allows all non-resource requests.
var (
	everything = rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{"*"}, Verbs: []string{"*"}}
	everywhere = rbacv1.PolicyRule{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}}
)
