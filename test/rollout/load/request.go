// SPDX-License-Identifier: Apache-2.0

package load

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// work runs one client. Of ten requests, three create an object, six get the last one, and one
// lists.
func (l *Load) work(ctx context.Context, at through, prefix string) {
	tick := time.NewTicker(cmp.Or(l.options.Period, defaultPeriod))
	defer tick.Stop()
	last := ""
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p := l.current.Load()
		p.sent.Add(1)
		var err error
		method := http.MethodGet
		switch {
		case i%10 < 3 || last == "":
			method = http.MethodPost
			name := fmt.Sprintf("%s-%d", prefix, i)
			if err = l.create(at, name); err == nil {
				last = name
			}
		case i%10 < 9:
			err = l.get(at, l.path+"/"+last, nil)
		default:
			err = l.get(at, l.path+"?limit=5", nil)
		}
		switch {
		case err == nil:
		case l.options.Tolerate != nil && l.options.Tolerate(method, err):
			l.tolerate(p, err)
		default:
			l.fail(p, "%s: %v", at.name, err)
		}
	}
}

func (l *Load) tolerate(p *phase, err error) {
	p.tolerated.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tolerated[err.Error()]++
}

func (l *Load) create(at through, name string) error {
	apiVersion, kind := l.options.Kind.ToAPIVersionAndKind()
	body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":{"purpose":"load"}}`,
		apiVersion, kind, name)
	// Without GetBody, net/http cannot send the request a second time.
	err := l.do(at, http.MethodPost, l.path, io.NopCloser(strings.NewReader(body)), http.StatusCreated, nil)
	if err == nil {
		l.mu.Lock()
		l.written[name] = true
		l.mu.Unlock()
	}
	return err
}

func (l *Load) get(at through, path string, into any) error {
	return l.do(at, http.MethodGet, path, nil, http.StatusOK, into)
}

// do sends one request once. It has its own timeout and ignores the end of the load, so that a
// started request completes.
func (l *Load) do(at through, method, path string, body io.Reader, want int, into any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, at.url+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := at.client.Do(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode != want {
		return fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, data)
	}
	if into != nil {
		return json.Unmarshal(data, into)
	}
	return nil
}

type list struct {
	Metadata struct{ ResourceVersion, Continue string }
	Items    []struct{ Metadata struct{ Name string } }
}

func (l *Load) resourceVersion(at through) string {
	var page list
	if err := l.get(at, l.path+"?limit=1", &page); err != nil {
		l.t.Fatal(err)
	}
	return page.Metadata.ResourceVersion
}
