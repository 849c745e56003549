// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"fmt"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

// maxClockSkew is less than what certificates begin before they are made, and more than a request may take.
const maxClockSkew = 5 * time.Minute

// checkClock refuses a clock by which certificates would be taken for expired, or be made for another time.
func checkClock(ctx context.Context, o interface {
	ClockSkew(context.Context) (time.Duration, error)
}) error {
	skew, err := o.ClockSkew(ctx)
	if err != nil {
		return err
	}
	if skew.Abs() <= maxClockSkew {
		return nil
	}
	direction := "ahead of"
	if skew < 0 {
		direction = "behind"
	}
	return &certs.RefusedError{Path: "the clock of this machine", Reason: fmt.Sprintf(
		"expected at most %s between it and that of kube-apiserver, found it %s %s; put the wrong one right", maxClockSkew, skew.Abs(), direction)}
}
