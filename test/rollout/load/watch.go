// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// watch is a watch that stays open during the whole load.
type watch struct {
	load   *Load
	at     through
	prefix string // of the names of its load's objects

	mu   sync.Mutex
	seen map[string]int
}

func (w *watch) run(ctx context.Context, resourceVersion string) {
	err := w.follow(ctx, resourceVersion)
	if !w.load.closing.Load() {
		w.load.fail(w.load.current.Load(), "watch through %s ended: %v", w.at.name, err)
	}
}

func (w *watch) follow(ctx context.Context, resourceVersion string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		w.at.url+w.load.path+"?watch=true&timeoutSeconds=1800&resourceVersion="+resourceVersion, nil)
	if err != nil {
		return err
	}
	resp, err := w.at.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	events := json.NewDecoder(resp.Body)
	for {
		var e struct {
			Type   string
			Object struct{ Metadata struct{ Name string } }
		}
		if err := events.Decode(&e); err != nil {
			return err
		}
		if e.Type != "ADDED" {
			w.load.fail(w.load.current.Load(), "watch through %s: got %s of %s, want ADDED only", w.at.name, e.Type,
				e.Object.Metadata.Name)
			continue
		}
		w.mu.Lock()
		w.seen[e.Object.Metadata.Name]++
		w.mu.Unlock()
	}
}

// awaitAll waits until the watch has received an event for each acknowledged write.
func (w *watch) awaitAll() {
	w.load.t.Helper()
	w.load.eventually("all events of a watch through "+w.at.name, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		var missing []string
		for name := range w.load.written {
			if w.seen[name] == 0 {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("%d of %d are missing, such as %s", len(missing), len(w.load.written), missing[0])
		}
		return nil
	})
}

// check fails the test for objects that arrived more than once or whose creation was not
// acknowledged.
func (w *watch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, n := range w.seen {
		if n != 1 || strings.HasPrefix(name, w.prefix) && !w.load.written[name] && len(w.load.failures) == 0 {
			w.load.t.Errorf("watch through %s: %s came %d times; acknowledged: %t", w.at.name, name, n,
				w.load.written[name])
		}
	}
}
