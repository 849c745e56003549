// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/pkg/apiserver"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// ConditionCalibrated is the type of the condition that is Unknown while a calibration is pending
// or running. Package calibrator does the work, which takes longer than a request may.
const ConditionCalibrated = "Calibrated"

// logPeriod is the interval at which a log checks for changes.
const logPeriod = 500 * time.Millisecond

// calibrate stores a request for a calibration. It returns a conflict while one is pending or
// running.
func calibrate(_ context.Context, widget *v1.Widget, by *v1.CalibrateWidget) (*v1.Widget, error) {
	if c := Calibration(widget); c != nil && c.Status == metav1.ConditionUnknown {
		return nil, apierrors.NewConflict(v1.Resource("widgets"), widget.Name, errors.New("it is being calibrated"))
	}
	meta.SetStatusCondition(&widget.Status.Conditions, metav1.Condition{Type: ConditionCalibrated,
		Status: metav1.ConditionUnknown, Reason: "Requested", Message: by.Reason, ObservedGeneration: widget.Generation})
	return widget, nil
}

// Calibration returns the condition of the last calibration, or nil.
func Calibration(widget *v1.Widget) *metav1.Condition {
	return meta.FindStatusCondition(widget.Status.Conditions, ConditionCalibrated)
}

// writeLog writes a line for each change of the last calibration.
func writeLog(ctx context.Context, widget *v1.Widget, options *v1.WidgetLogOptions, w io.Writer) error {
	last := ""
	for {
		c := Calibration(widget)
		if c == nil {
			return nil
		}
		if line := fmt.Sprintf("%s: %s\n", c.Reason, c.Message); line != last {
			if _, err := io.WriteString(w, line); err != nil {
				return err
			}
			last = line
		}
		if !options.Follow || c.Status != metav1.ConditionUnknown {
			return nil
		}
		select {
		case <-time.After(logPeriod):
		case <-ctx.Done():
			return ctx.Err()
		}
		widgets, err := apiserver.RuntimeFrom(ctx).Reader(v1.Resource("widgets"))
		if err != nil {
			return err
		}
		obj, err := widgets.Get(ctx, widget.Name, &metav1.GetOptions{ResourceVersion: "0"}) // from the watch cache
		if err != nil {
			return err
		}
		latest := obj.(*v1.Widget) //nolint:forcetypeassert // the kind has no other internal type
		if latest.UID != widget.UID {
			return apierrors.NewNotFound(v1.Resource("widgets"), widget.Name) // another widget replaced it
		}
		widget = latest
	}
}
