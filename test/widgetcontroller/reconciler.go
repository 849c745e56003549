// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "example.com/extension-apiserver/pkg/apis/workshop/v1"
)

const (
	// conditionReady is true when all copies are usable.
	conditionReady = "Ready"
	// retryAfter gives the cache time to see the change that a write conflicted with.
	retryAfter = 100 * time.Millisecond
)

// reconciler brings the status of widgets up to their specs.
type reconciler struct{ client.Client }

// Reconcile writes the status of one widget if it is not what it must be, and nothing else.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	widget := &v1.Widget{}
	if err := r.Get(ctx, request.NamespacedName, widget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := widget.Status.DeepCopy()
	observe(widget)
	if apiequality.Semantic.DeepEqual(before, &widget.Status) {
		return ctrl.Result{}, nil
	}
	// The update holds the resourceVersion that was read: when that is old, the status may be about an old spec.
	err := r.Status().Update(ctx, widget)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: retryAfter}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// observe fills in the status. A real controller would count copies; here there are always as many as were wanted.
func observe(widget *v1.Widget) {
	status := &widget.Status
	status.ObservedGeneration = widget.Generation
	status.Replicas = 0
	if widget.Spec.Replicas != nil {
		status.Replicas = *widget.Spec.Replicas
	}
	status.ReadyReplicas = status.Replicas
	status.Selector = labels.Set{v1.SchemeGroupVersion.Group + "/widget": widget.Name}.String()
	// Conditions of others stay; the time changes with the status of the condition only.
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: conditionReady, Status: metav1.ConditionTrue, ObservedGeneration: widget.Generation,
		Reason: "AllCopiesReady", Message: fmt.Sprintf("%d of %d copies are ready", status.ReadyReplicas, status.Replicas),
	})
}
