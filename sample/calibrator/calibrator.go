// SPDX-License-Identifier: Apache-2.0

// Package calibrator shows how a server does work that takes longer than a request may, which is
// 34 seconds for a write. The action calibrate of a Widget stores the request, one of the servers
// does the work, and the status and the log of the Widget report the progress.
package calibrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"example.com/extension-apiserver/pkg/apiserver"
	"example.com/extension-apiserver/sample/apis/client/clientset/versioned"
	workshopv1 "example.com/extension-apiserver/sample/apis/client/clientset/versioned/typed/workshop/v1"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/registry/workshop/widget"
)

const (
	// steps is the number of steps of a calibration.
	steps = 10
	// leaseName is the name of the Lease that the calibrating server holds.
	leaseName = "extension-apiserver-calibrator"
)

// Calibrator calibrates Widgets in the server that holds the Lease.
type Calibrator struct {
	step time.Duration
}

// New returns a Calibrator with the default values of its flags.
func New() *Calibrator {
	return &Calibrator{step: 20 * time.Second}
}

// AddFlags implements apiserver.Flags.
func (c *Calibrator) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&c.step, "calibration-step", c.step,
		fmt.Sprintf("Duration of each of the %d steps in which a Widget is calibrated.", steps))
}

// Validate implements apiserver.Flags.
func (c *Calibrator) Validate() []error {
	if c.step <= 0 {
		return []error{fmt.Errorf("--calibration-step is %s, expected more than 0", c.step)}
	}
	return nil
}

// Permissions returns the permissions that the Lease needs in the namespace of the server. RBAC
// cannot restrict create by resource name.
func (c *Calibrator) Permissions() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{leaseName},
			Verbs: []string{"get", "update"}},
	}
}

// Start is a post-start hook. It calibrates Widgets while this server holds the Lease.
func (c *Calibrator) Start(ctx context.Context, server *apiserver.Runtime) error {
	widgets, err := versioned.NewForConfig(server.LoopbackConfig)
	if err != nil {
		return err
	}
	reader, err := server.Reader(v1.Resource("widgets"))
	if err != nil {
		return err
	}
	leases, err := coordinationv1.NewForConfig(server.ClientConfig)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: leaseName, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true,
		Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: server.Namespace, Name: leaseName},
			Client: leases, LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}},
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { c.run(ctx, reader, widgets.WorkshopV1()) },
			OnStoppedLeading: func() { klog.InfoS("Another server calibrates the widgets, or this one stops") },
		},
	})
	if err != nil {
		return err
	}
	go wait.UntilWithContext(ctx, elector.Run, time.Second)
	return nil
}

// run calibrates one Widget at a time until ctx is done. A server that takes over starts again with
// the first step. It lists Widgets with the reader, which shares the objects of the watch cache: a
// list by the client would take several times the memory of all objects.
func (c *Calibrator) run(ctx context.Context, reader apiserver.Reader, client workshopv1.WidgetsGetter) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		list, err := reader.List(genericapirequest.WithNamespace(ctx, metav1.NamespaceAll),
			&internalversion.ListOptions{ResourceVersion: "0"})
		if err != nil {
			klog.ErrorS(err, "List Widgets to calibrate")
			return
		}
		err = meta.EachListItem(list, func(object runtime.Object) error {
			w, ok := object.(*v1.Widget)
			if !ok {
				return fmt.Errorf("list Widgets to calibrate: got a %T", object)
			}
			if condition := widget.Calibration(w); condition != nil && condition.Status == metav1.ConditionUnknown {
				if err := c.calibrate(ctx, client.Widgets(w.Namespace), w); err != nil && ctx.Err() == nil {
					klog.ErrorS(err, "Calibrate a Widget", "widget", klog.KObj(w))
				}
			}
			return nil
		})
		if err != nil {
			klog.ErrorS(err, "Calibrate Widgets")
		}
	}, c.step)
}

func (c *Calibrator) calibrate(ctx context.Context, client workshopv1.WidgetInterface, w *v1.Widget) error {
	for step := 1; step <= steps; step++ {
		select {
		case <-time.After(c.step):
		case <-ctx.Done():
			return ctx.Err()
		}
		condition := metav1.Condition{Type: widget.ConditionCalibrated, Status: metav1.ConditionUnknown, Reason: "Running",
			Message: fmt.Sprintf("step %d of %d", step, steps), ObservedGeneration: w.Generation}
		if step == steps {
			condition.Status, condition.Reason = metav1.ConditionTrue, "Completed"
		}
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			latest, err := client.Get(ctx, w.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if c := widget.Calibration(latest); latest.UID != w.UID || c == nil || c.Status != metav1.ConditionUnknown {
				return errors.New("it is not to be calibrated any more")
			}
			meta.SetStatusCondition(&latest.Status.Conditions, condition)
			_, err = client.UpdateStatus(ctx, latest, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
