// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	v1ac "example.com/extension-apiserver/sample/apis/client/applyconfiguration/workshop/v1"
	"example.com/extension-apiserver/sample/apis/client/clientset/versioned"
	"example.com/extension-apiserver/sample/apis/client/informers/externalversions"
	listers "example.com/extension-apiserver/sample/apis/client/listers/workshop/v1"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

const (
	// conditionReady is true when all copies are ready.
	conditionReady = "Ready"
	// fieldManager owns the fields that the controller writes.
	fieldManager = "widget-controller"
)

// controller updates the status of widgets to match their specs.
type controller struct {
	clients versioned.Interface
	factory externalversions.SharedInformerFactory
	widgets listers.WidgetLister
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

func newController(clients versioned.Interface) *controller {
	factory := externalversions.NewSharedInformerFactory(clients, 0)
	return &controller{
		clients: clients,
		factory: factory,
		widgets: factory.Workshop().V1().Widgets().Lister(),
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}
}

// run reconciles widgets until the context ends. A controller with several replicas also needs
// leader election, and permissions for Leases.
func (c *controller) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	// Changes are not filtered by generation, so that a status that another client overwrote is
	// corrected too. Deletions need no handler, because a deleted widget has no status.
	enqueue := func(obj any) { c.queue.Add(cache.MetaObjectToName(obj.(*v1.Widget))) }
	handler, err := c.factory.Workshop().V1().Widgets().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) },
	})
	if err != nil {
		return fmt.Errorf("follow widgets: %w", err)
	}
	c.factory.StartWithContext(ctx)
	defer c.factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return nil // the context ended
	}
	for c.processNext(ctx) {
	}
	return nil
}

// processNext reconciles the next queued widget. It returns false when the queue is shut down.
func (c *controller) processNext(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	if err := c.reconcile(ctx, name); err != nil {
		klog.FromContext(ctx).Error(err, "Widget is tried again later", "widget", name)
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	return true
}

// reconcile writes the status of one widget if it is out of date. It writes nothing else.
func (c *controller) reconcile(ctx context.Context, name cache.ObjectName) error {
	widget, err := c.widgets.Widgets(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	status := observe(widget)
	if apiequality.Semantic.DeepEqual(&widget.Status, status) {
		return nil
	}
	ready := meta.FindStatusCondition(status.Conditions, conditionReady)
	// The resourceVersion that was read prevents overwriting a newer status: the server responds
	// with a conflict, and the widget is retried. Conditions of other owners are left out, so
	// they stay unchanged.
	patch := v1ac.Widget(widget.Name, widget.Namespace).WithUID(widget.UID).WithResourceVersion(
		widget.ResourceVersion).WithStatus(v1ac.WidgetStatus().
		WithObservedGeneration(status.ObservedGeneration).WithReplicas(status.Replicas).WithReadyReplicas(
		status.ReadyReplicas).WithSelector(status.Selector).
		WithConditions(metav1ac.Condition().WithType(ready.Type).WithStatus(ready.Status).WithObservedGeneration(
			ready.ObservedGeneration).
			WithReason(ready.Reason).WithMessage(ready.Message).WithLastTransitionTime(ready.LastTransitionTime)))
	_, err = c.clients.WorkshopV1().Widgets(widget.Namespace).ApplyStatus(ctx, patch,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// observe returns the desired status of the widget. A real controller would count copies; this
// one reports as many as the spec requests.
func observe(widget *v1.Widget) *v1.WidgetStatus {
	status := widget.Status.DeepCopy()
	status.ObservedGeneration = widget.Generation
	status.Replicas = 0
	if widget.Spec.Replicas != nil {
		status.Replicas = *widget.Spec.Replicas
	}
	status.ReadyReplicas = status.Replicas
	status.Selector = labels.Set{v1.SchemeGroupVersion.Group + "/widget": widget.Name}.String()
	// SetStatusCondition changes the transition time only when the status of the condition
	// changes.
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: conditionReady, Status: metav1.ConditionTrue, ObservedGeneration: widget.Generation,
		Reason: "AllCopiesReady", Message: fmt.Sprintf("%d of %d copies are ready", status.ReadyReplicas,
			status.Replicas),
	})
	return status
}
