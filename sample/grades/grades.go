// SPDX-License-Identifier: Apache-2.0

// Package grades shows an admission plugin that reads other objects: it restricts the grades of a
// namespace's Widgets to those that an annotation of the Namespace lists.
package grades

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"example.com/extension-apiserver/pkg/apiserver"
	"example.com/extension-apiserver/sample/apis/workshop"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// Annotation is the key of the annotation of a Namespace that lists the permitted grades of its
// Widgets, separated by commas. If it is missing or empty, all grades are permitted.
const Annotation = workshop.GroupName + "/grades"

// Plugin rejects Widgets with a grade that Annotation does not list. A Widget that already has such
// a grade can be changed and deleted, but no other Widget can be given it.
var Plugin = apiserver.AdmissionPlugin{
	Name: "WidgetGrades",
	New: func(server *apiserver.Runtime) (admission.Interface, error) {
		client, err := kubernetes.NewForConfig(server.ClientConfig)
		if err != nil {
			return nil, err
		}
		namespaces := server.Informers.Core().V1().Namespaces()
		p := newPlugin(namespaces.Lister(), client.CoreV1())
		p.SetReadyFunc(namespaces.Informer().HasSynced)
		return p, nil
	},
	Permissions: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}},
	},
}

type plugin struct {
	*admission.Handler
	namespaces corev1listers.NamespaceLister
	client     corev1client.NamespacesGetter
}

func newPlugin(namespaces corev1listers.NamespaceLister, client corev1client.NamespacesGetter) *plugin {
	return &plugin{admission.NewHandler(admission.Create, admission.Update), namespaces, client}
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != v1.Resource("widgets") || a.GetSubresource() != "" {
		return nil
	}
	widget, ok := a.GetObject().(*v1.Widget)
	if !ok {
		return fmt.Errorf("check the grade of a Widget: got a %T", a.GetObject())
	}
	if old, ok := a.GetOldObject().(*v1.Widget); ok && old.Spec.Grade == widget.Spec.Grade {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("namespaces are not yet known"))
	}
	namespace, err := p.namespace(ctx, a.GetNamespace())
	if err != nil {
		return err
	}
	list := namespace.Annotations[Annotation]
	permitted := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
	if list != "" && !slices.Contains(permitted, string(widget.Spec.Grade)) {
		return admission.NewForbidden(a, fmt.Errorf("spec.grade is %s, but the namespace %s permits %s",
			widget.Spec.Grade, namespace.Name, list))
	}
	return nil
}

// namespace returns a Namespace. If the informer does not have it, namespace requests it from
// kube-apiserver, because it may be new.
func (p *plugin) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace, err := p.namespaces.Get(name)
	if apierrors.IsNotFound(err) {
		return p.client.Namespaces().Get(ctx, name, metav1.GetOptions{})
	}
	return namespace, err
}
