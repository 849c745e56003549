// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/extension-apiserver/pkg/registry"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/registry/workshop/gadget"
)

// secret is part of the panic values and must not reach a client.
const secret = "the password is hunter2"

// panicking is a RESTOptionsGetter whose storage panics for certain object names.
type panicking struct{ generic.RESTOptionsGetter }

func (g panicking) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := g.RESTOptionsGetter.GetRESTOptions(resource, example)
	decorate := options.Decorator
	options.Decorator = func(config *storagebackend.ConfigForResource, prefix string,
		keyFunc func(runtime.Object) (string, error), newFunc,
		newListFunc func() runtime.Object, attrs storage.AttrFunc, trigger storage.IndexerFuncs,
		indexers *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		s, destroy, err := decorate(config, prefix, keyFunc, newFunc, newListFunc, attrs, trigger, indexers)
		return panickingStorage{s}, destroy, err
	}
	return options, err
}

type panickingStorage struct{ storage.Interface }

func (s panickingStorage) Get(ctx context.Context, key string, options storage.GetOptions, into runtime.Object) error {
	switch {
	case strings.HasSuffix(key, "/panics"):
		panic(secret)
	case strings.HasSuffix(key, "/nil"):
		var nobody *storage.GetOptions
		return errors.New(nobody.ResourceVersion)
	case strings.HasSuffix(key, "/aborts"):
		panic(http.ErrAbortHandler)
	}
	return s.Interface.Get(ctx, key, options, into)
}

func (s panickingStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if strings.HasSuffix(key, "/panics") {
		panic(secret)
	}
	return s.Interface.Create(ctx, key, obj, out, ttl)
}

// logBuffer collects log output from several goroutines.
type logBuffer struct {
	sync.Mutex
	bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.Lock()
	defer b.Unlock()
	return b.Buffer.Write(p)
}

func (b *logBuffer) String() string {
	b.Lock()
	defer b.Unlock()
	return b.Buffer.String()
}

// captureLog redirects the output of klog for the duration of a test.
func captureLog(t *testing.T) *logBuffer {
	log := &logBuffer{}
	klog.LogToStderr(false)
	klog.SetOutput(log)
	t.Cleanup(func() {
		klog.Flush()
		klog.SetOutput(io.Discard)
		klog.LogToStderr(true)
	})
	return log
}

// TestS34Panic: a panic ends only its own request, not the process or other requests on the same
// connection. The response is 500. If the response has begun, it is aborted, so that a client
// does not treat it as complete. The caller receives no details; the log contains them.
func TestS34Panic(t *testing.T) {
	log := captureLog(t)
	release := make(chan struct{})
	kind := gadget.Kind
	kind.Validate = func(_ context.Context, g, _ *v1.Gadget) field.ErrorList {
		if g.Name == "hook" {
			panic(secret)
		}
		return nil
	}
	api := withGroup(func(g *Group) { g.Kinds = []registry.NewStorage{kind.NewStorage} })
	s := startOffline(t, api, func(c *serverConfig) {
		c.generic.RESTOptionsGetter = panicking{c.generic.RESTOptionsGetter}
	}, map[string]http.HandlerFunc{
		"/slow":       func(w http.ResponseWriter, _ *http.Request) { <-release; _, _ = io.WriteString(w, "slow") },
		"/panic":      func(http.ResponseWriter, *http.Request) { panic(secret) },
		"/late-panic": func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); panic(secret) },
	})
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			client := s.client(protocol)
			defer client.CloseIdleConnections()
			// This request opens the connection.
			client.want(t, http.MethodGet, gadgets, "", "200")
			slow := make(chan string, 1)
			go func() { slow <- client.try(t, http.MethodGet, "/slow", "") }()
			// If 48 panics did not release their seats, they would occupy more than exist.
			for i := range 8 {
				client.want(t, http.MethodGet, gadgets+"/panics", "", "500")
				client.want(t, http.MethodGet, gadgets+"/nil", "", "500")
				client.want(t, http.MethodPost, gadgets, gadgetNamed("panics"), "500")
				client.want(t, http.MethodPost, gadgets, gadgetNamed("hook"), "500")
				client.want(t, http.MethodGet, "/panic", "", "500")
				client.want(t, http.MethodGet, "/late-panic", "", "cut")
				client.want(t, http.MethodGet, gadgets+"/aborts", "", "cut")
				client.want(t, http.MethodPost, gadgets, gadgetNamed(fmt.Sprintf("fine-%d-%d", client.major(), i)),
					"201")
			}
			release <- struct{}{}
			if got := <-slow; got != "200" {
				t.Errorf("the request beside the panics: got %s, want 200", got)
			}
			if got := client.dialed.Load(); client.http2 && got != 1 {
				t.Errorf("connections: got %d, want 1 on which the others went on", got)
			}
		})
	}
	klog.Flush()
	for _, want := range []string{secret, "panics_test.go:", "apiserver panic'd", "nil pointer dereference"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log: got no %q; it is\n%s", want, log)
		}
	}
	metrics := s.client("HTTP/2.0").get(t, "/metrics")
	for _, want := range []string{
		// 6 requests that panic, 8 times over each protocol.
		`(?m)^extension_apiserver_panics_total 96$`,
		`(?m)^apiserver_request_aborts_total\{.*resource="gadgets",.*\} [1-9]`,
		// The one seat belongs to the request for the metrics.
		`(?m)^apiserver_flowcontrol_current_executing_seats\{flow_schema="catch-all",priority_level="catch-all"\} 1$`,
	} {
		if !regexp.MustCompile(want).MatchString(metrics) {
			t.Errorf("metrics: got none that matches %s", want)
		}
	}
}

const gadgets = "/apis/workshop.example.com/v1/gadgets"

func gadgetNamed(name string) string {
	return `{"apiVersion":"workshop.example.com/v1","kind":"Gadget","metadata":{"name":"` + name +
		`"},"spec":{"purpose":"none"}}`
}
