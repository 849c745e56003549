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
