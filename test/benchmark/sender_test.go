// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// request is a request to kube-apiserver. The default media type is JSON.
type request struct{ method, path, accept, contentType, body string }

// through sends requests through kube-apiserver as an ordinary user.
type through struct {
	client *http.Client
	host   string
	// retries counts requests that were repeated because of a response with 429.
	retries atomic.Int64
}

// statusError is a response that is not successful.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

// open sends a request and returns a successful response. After a response with 429 it repeats the
// request when Retry-After allows.
func (s *through) open(ctx context.Context, r request) (*http.Response, error) {
	for {
		req, err := http.NewRequestWithContext(ctx, r.method, s.host+r.path, strings.NewReader(r.body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", cmp.Or(r.accept, "application/json"))
		req.Header.Set("Accept-Encoding", "identity")
		req.Header.Set("Content-Type", cmp.Or(r.contentType, "application/json"))
		resp, err := s.client.Do(req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode < http.StatusBadRequest {
			return resp, nil
		}
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // only for the error
		_ = resp.Body.Close()                                   // nothing was written
		if resp.StatusCode != http.StatusTooManyRequests {
			return nil, &statusError{resp.StatusCode, fmt.Sprintf("%s %s: %s: %s", r.method, r.path, resp.Status, text)}
		}
		s.retries.Add(1)
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if err != nil {
			return nil, fmt.Errorf("%s %s: read Retry-After: %w", r.method, r.path, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Duration(seconds) * time.Second):
		}
	}
}

// send sends a request and returns the size of the response body.
func (s *through) send(ctx context.Context, r request) (int64, error) {
	resp, err := s.open(ctx, r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		return n, fmt.Errorf("%s %s: read response: %w", r.method, r.path, err)
	}
	return n, nil
}

// sendAll calls once for 0 to n-1 with a number of workers. It returns the duration of each call
// and the sum of the sizes.
func sendAll(ctx context.Context, n, workers int, once func(ctx context.Context, i int) (int64, error)) (
	[]time.Duration, int64, error) {
	var mu sync.Mutex
	var took []time.Duration
	var total int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error {
			began := time.Now()
			size, err := once(ctx, i)
			mu.Lock()
			defer mu.Unlock()
			took, total = append(took, time.Since(began)), total+size
			return err
		})
	}
	err := group.Wait()
	return took, total, err
}
