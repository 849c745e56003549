// SPDX-License-Identifier: Apache-2.0

// Command childserver serves widgets that belong to the ConfigMap "parent" of their namespace, which
// must exist, and whose writes require the verb approve.
package main

import (
	"context"
	"os"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"

	"example.com/extension-apiserver/pkg/apiserver"
	"example.com/extension-apiserver/pkg/command"
	"example.com/extension-apiserver/pkg/registry"
	"example.com/extension-apiserver/pkg/registry/subresource"
	"example.com/extension-apiserver/sample"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/registry/workshop/widget"
)

func main() {
	api, kind := sample.API(), widget.Kind
	kind.PrepareForCreate = adopt
	kind.Authorize = approve
	kind.Validate = func(ctx context.Context, obj, old *v1.Widget) field.ErrorList {
		errs := widget.Kind.Validate(ctx, obj, old)
		if old == nil && len(obj.OwnerReferences) == 0 {
			errs = append(errs, field.Required(field.NewPath("metadata", "ownerReferences"), "the namespace has no parent"))
		}
		return errs
	}
	api.Groups[0].Kinds = []registry.NewStorage{kind.NewStorage}
	os.Exit(command.Run(api))
}

// adopt makes the parent an owner of a widget.
func adopt(ctx context.Context, w *v1.Widget) {
	clients, err := kubernetes.NewForConfig(apiserver.RuntimeFrom(ctx).ClientConfig)
	if err != nil {
		return // the validation rejects the widget
	}
	parent, err := clients.CoreV1().ConfigMaps(w.Namespace).Get(ctx, "parent", metav1.GetOptions{})
	if err != nil {
		return // likewise
	}
	w.OwnerReferences = append(w.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap",
		Name: parent.Name, UID: parent.UID})
}

// approve requires the verb approve for each change of more than the metadata.
func approve(ctx context.Context, a authorizer.Authorizer, w, old *v1.Widget) error {
	if old != nil && equality.Semantic.DeepEqual(w.Spec, old.Spec) && equality.Semantic.DeepEqual(w.Status, old.Status) {
		return nil
	}
	return subresource.Authorize(ctx, a, authorizer.AttributesRecord{Verb: "approve",
		APIGroup: v1.SchemeGroupVersion.Group, Resource: "widgets", Namespace: w.Namespace, Name: w.Name})
}
