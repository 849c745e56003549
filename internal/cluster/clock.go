// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/certs"
)

// ClockSkew is how far the clock here is ahead of the Date that kube-apiserver answers with (RFC 9110, 6.6.1), to the second.
func (c *Cluster) ClockSkew(ctx context.Context) (time.Duration, error) {
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return 0, fmt.Errorf("make client: %w", err)
	}
	url := strings.TrimSuffix(c.Config.Host, "/") + "/version"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask kube-apiserver for its time: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // whatever it says
	date, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return 0, fmt.Errorf("%s: expected a header Date: %w", url, err)
	}
	return c.Time().Sub(date).Truncate(time.Second), nil
}

// maxClockSkew is less than what certificates begin before they are made, and more than a request may take.
const maxClockSkew = 5 * time.Minute

// CheckClock refuses a clock by which certificates would be taken for expired, or be made for another time.
func CheckClock(ctx context.Context, o interface {
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
