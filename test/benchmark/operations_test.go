// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/pkg/envtest"
)

const (
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asProtobuf = "application/vnd.kubernetes.protobuf"
	// workers is the number of concurrent requests. More would measure the queue of a small
	// machine.
	workers = 4
	// hot is the number of objects that requests for one object use. A server asks kube-apiserver
	// once in some seconds whether the user may access an object. Requests for other objects each
	// time include the SubjectAccessReview.
	hot = 10
	// perConnection is the number of watches per connection. HTTP/2 of Go allows 100 to 250.
	perConnection = 50
)

// size is the extent of a run.
type size struct {
	name                        string
	objects, rounds             int
	gets, writes, lists, events int
	watchers                    int
	// pages and informers are the numbers of lists in pages of 500 and of simultaneous relists.
	pages, informers int
	// settle is the time between the deletion of all objects and the last measurement of memory.
	settle time.Duration
}

var sizes = map[string]size{
	"smoke": {name: "smoke", objects: 20, rounds: 2, gets: 5, writes: 5, lists: 1, events: 2, watchers: 3, pages: 1,
		informers: 2},
	"quick": {name: "quick", objects: 2000, rounds: 5, gets: 600, writes: 200, lists: 5, events: 30, watchers: 50,
		settle: time.Minute},
	"full": {name: "full", objects: 100_000, rounds: 5, gets: 5000, writes: 1000, lists: 2, events: 20, watchers: 1000,
		pages: 1, informers: 50, settle: time.Minute},
}

// operation is one row of the report. run performs count operations with a target and returns
// their durations and the size of the responses.
type operation struct {
	name  string
	count int
	list  bool
	run   func(ctx context.Context, r *run, t *target, n int) ([]time.Duration, int64, error)
	// before prepares the run, and its cost is not measured. It returns a function that ends it.
	before func(ctx context.Context, r *run, t *target) (func(), error)
}

func operations(s size) []operation {
	perList := func(form string) string { return fmt.Sprintf("list %d as %s", s.objects, form) }
	all := []operation{
		{name: "get", count: s.gets, run: each(workers, func(_ *run, t *target, i int) request {
			return t.get(objectName(i % hot))
		})},
		{name: "get of another object each time", count: s.writes, run: each(workers, func(r *run, t *target, _ int) request {
			return t.get(objectName(int(r.number.Add(1)) % r.size.objects))
		})},
		{name: "create", count: s.writes, run: each(workers, func(r *run, t *target, i int) request {
			return t.create(createdName(i), r.number.Add(1))
		})},
		{name: "merge patch", count: s.writes, run: each(workers, func(r *run, t *target, i int) request {
			return t.mergePatch(objectName(i%hot), r.number.Add(1))
		})},
		{name: "server-side apply", count: s.writes, run: each(workers, func(r *run, t *target, i int) request {
			return t.apply(objectName(hot+i%hot), r.number.Add(1))
		})},
		{name: "delete", count: s.writes, run: each(workers, func(_ *run, t *target, i int) request {
			return t.delete(createdName(i))
		})},
		{name: perList("JSON"), count: s.lists, list: true, run: each(1, func(_ *run, t *target, _ int) request {
			return t.list("", "")
		})},
		{name: perList("protobuf"), count: s.lists, list: true, run: each(1, func(_ *run, t *target, _ int) request {
			return t.list(asProtobuf, "")
		})},
		{name: perList("Table"), count: s.lists, list: true, run: each(1, func(_ *run, t *target, _ int) request {
			return t.list(asTable, "")
		})},
		{name: fmt.Sprintf("one event to %d watchers", s.watchers), count: s.events, run: sendEvents, before: openWatches},
	}
	if s.pages > 0 {
		all = append(all, operation{name: fmt.Sprintf("list %d in pages of %d", s.objects, pageSize), count: s.pages,
			list: true, run: listPages})
	}
	if s.informers > 0 {
		all = append(all, operation{name: fmt.Sprintf("one relist of %d at a time", s.informers), count: s.informers,
			list: true, run: each(s.informers, func(_ *run, t *target, _ int) request {
				return t.list("", "?resourceVersion=0")
			})})
	}
	return all
}

func objectName(i int) string  { return fmt.Sprintf("object-%06d", i) }
func createdName(i int) string { return fmt.Sprintf("created-%06d", i) }

// each returns a run of requests with a number of workers.
func each(workers int, request func(r *run, t *target, i int) request) func(context.Context, *run, *target, int) (
	[]time.Duration, int64, error) {
	return func(ctx context.Context, r *run, t *target, n int) ([]time.Duration, int64, error) {
		return sendAll(ctx, n, workers, func(ctx context.Context, i int) (int64, error) {
			return r.sender.send(ctx, request(r, t, i))
		})
	}
}

const pageSize = 500

// listPages lists all objects in pages, n times.
func listPages(ctx context.Context, r *run, t *target, n int) ([]time.Duration, int64, error) {
	return sendAll(ctx, n, 1, func(ctx context.Context, _ int) (size int64, _ error) {
		next := ""
		for {
			n, token, err := r.sender.page(ctx, t.list("", fmt.Sprintf("?limit=%d&continue=%s", pageSize, url.QueryEscape(next))))
			if size += n; err != nil || token == "" {
				return size, err
			}
			next = token
		}
	})
}

// page sends a request for a page of a list, and returns its size and the token of the next one.
func (s *through) page(ctx context.Context, r request) (int64, string, error) {
	resp, err := s.open(ctx, r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", fmt.Errorf("%s %s: read response: %w", r.method, r.path, err)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		return 0, "", fmt.Errorf("%s %s: decode response: %w", r.method, r.path, err)
	}
	return int64(len(body)), list.Continue, nil
}

// openWatches opens watches of all objects, which send only later events. The returned function
// closes them.
func openWatches(ctx context.Context, r *run, t *target) (func(), error) {
	resp, err := r.sender.open(ctx, t.list("", "?limit=1"))
	if err != nil {
		return nil, err
	}
	var list metav1.PartialObjectMetadataList
	err = json.NewDecoder(resp.Body).Decode(&list)
	_ = resp.Body.Close() // nothing was written
	if err != nil {
		return nil, fmt.Errorf("decode list of %s: %w", t.name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	r.arrived = make(chan int, r.size.watchers)
	var readers sync.WaitGroup
	end := func() { cancel(); readers.Wait() }
	var watcher *through
	for i := range r.size.watchers {
		if i%perConnection == 0 {
			watcher = &through{client: connect(r.t, r.user), host: r.user.Host}
		}
		events, err := watcher.open(ctx, t.list("", "?watch=true&resourceVersion="+list.ResourceVersion))
		if err != nil {
			end()
			return nil, err
		}
		readers.Go(func() { readEvents(events.Body, r.arrived) })
	}
	return end, nil
}

// readEvents sends the size of each event until the watch ends.
func readEvents(body io.ReadCloser, arrived chan<- int) {
	defer body.Close()
	for lines := bufio.NewReaderSize(body, 64<<10); ; {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		arrived <- len(line)
	}
}

// sendEvents changes an object n times and waits for the event of each change at all watches. The
// duration is that until the last one.
func sendEvents(ctx context.Context, r *run, t *target, n int) ([]time.Duration, int64, error) {
	return sendAll(ctx, n, 1, func(ctx context.Context, i int) (size int64, _ error) {
		if _, err := r.sender.send(ctx, t.mergePatch(objectName(i%hot), r.number.Add(1))); err != nil {
			return 0, err
		}
		timeout := time.After(envtest.WaitTimeout)
		for missing := r.size.watchers; missing > 0; missing-- {
			select {
			case bytes := <-r.arrived:
				size += int64(bytes)
			case <-timeout:
				return 0, fmt.Errorf("watch %s: %d of %d events are missing", t.name, missing, r.size.watchers)
			}
		}
		return size, nil
	})
}
