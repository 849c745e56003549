// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	stdcmp "cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/objectsizes"
	"example.com/extension-apiserver/pkg/registry"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// sourced returns an API of which no kind is stored in etcd: Parts are cached, Gadgets live.
func sourced(parts registry.Cached[*v1.Part], gadgets registry.Live[*v1.Gadget]) API {
	return withGroup(func(g *Group) {
		g.Kinds = []registry.NewStorage{
			registry.Kind[*v1.Part]{ClusterScoped: true, Source: parts, SelectableFields: map[string]func(*v1.Part) string{
				"status.shelf": func(p *v1.Part) string { return p.Status.Shelf },
			}}.NewStorage,
			registry.Kind[*v1.Gadget]{ClusterScoped: true, Source: gadgets}.NewStorage,
		}
	})
}

func listOf(parts ...*v1.Part) func(context.Context) iter.Seq2[*v1.Part, error] {
	return func(context.Context) iter.Seq2[*v1.Part, error] {
		return func(yield func(*v1.Part, error) bool) {
			for _, part := range parts {
				if !yield(part, nil) {
					return
				}
			}
		}
	}
}

func newPart(name, shelf string) *v1.Part {
	return &v1.Part{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.PartStatus{Shelf: shelf}}
}

// liveGadgets has three gadgets, and returns one for each page. Its get returns the name of the caller.
var liveGadgets = registry.Live[*v1.Gadget]{
	Get: func(ctx context.Context, _, name string) (*v1.Gadget, error) {
		u, _ := genericapirequest.UserFrom(ctx)
		switch name {
		case "mine":
			return &v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.GadgetSpec{Purpose: "for " + u.GetName()}}, nil
		case "broken":
			return nil, errors.New("no connection")
		case "slow":
			<-ctx.Done()
			return nil, ctx.Err()
		case "other":
			return &v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: "another"}}, nil
		}
		return nil, nil
	},
	List: func(_ context.Context, options registry.LiveListOptions) ([]*v1.Gadget, string, error) {
		next := map[string]string{"": "b", "b": "c", "c": ""}[options.Continue]
		g := &v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: "gadget-" + stdcmp.Or(options.Continue, "a"),
			Labels: map[string]string{"page": "p" + options.Continue}}}
		return []*v1.Gadget{g}, next, nil
	},
}

// TestSources checks the responses of a server without etcd.
func TestSources(t *testing.T) {
	bolt, gear := newPart("bolt", "B4"), newPart("gear", "A1")
	s := startOffline(t, sourced(registry.Cached[*v1.Part]{List: listOf(gear, bolt)}, liveGadgets), func(*serverConfig) {},
		nil)
	client := s.client("HTTP/2.0")
	defer client.CloseIdleConnections()
	const api = "/apis/workshop.example.com/v1"
	var resources metav1.APIResourceList
	if err := json.Unmarshal([]byte(client.get(t, api)), &resources); err != nil {
		t.Fatal(err)
	}
	verbs := map[string]string{}
	for _, r := range resources.APIResources {
		verbs[r.Name] = strings.Join(r.Verbs, ",")
	}
	if diff := cmp.Diff(map[string]string{"parts": "get,list,watch", "gadgets": "get,list",
		"identityreviews": "create"}, verbs); diff != "" {
		t.Errorf("verbs (-want +got):\n%s", diff)
	}
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/parts/bolt", `"shelf":"B4"`},
		{"GET", "/parts/nut", `parts.workshop.example.com \"nut\" not found`},
		{"GET", "/parts?fieldSelector=status.shelf%3DA1", `"name":"gear"`},
		{"GET", "/parts?limit=1", `"remainingItemCount":1`},
		{"GET", "/parts?watch=1&timeoutSeconds=1&resourceVersion=0", `{"type":"ADDED","object":{"kind":"Part"`},
		{"GET", "/parts?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&" +
			"allowWatchBookmarks=true", `"k8s.io/initial-events-end":"true"`},
		{"GET", "/parts?resourceVersion=12345", `"reason":"Expired"`},
		{"POST", "/parts", `"code":405`},
		{"DELETE", "/parts/bolt", `"code":405`},
		{"PATCH", "/parts/bolt", `"code":405`},
		{"GET", "/gadgets/mine", `"purpose":"for ann","precision":2`},
		{"GET", "/gadgets/none", `gadgets.workshop.example.com \"none\" not found`},
		{"GET", "/gadgets/broken", `"message":"get gadgets.workshop.example.com: no connection"`},
		{"GET", "/gadgets/broken", `"code":503`},
		{"GET", "/gadgets/other", `"code":500`},
		{"GET", "/gadgets?limit=1", `"metadata":{"continue":"b"}`},
		{"GET", "/gadgets?limit=1&continue=c", `"metadata":{},"items":[{"metadata":{"name":"gadget-c"`},
		{"GET", "/gadgets?labelSelector=page%3Dother", `"items":[]`},
	} {
		_, got, err := client.do(t.Context(), c.method, api+c.path, "")
		if err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s %s: got %s, %v, want %s", c.method, c.path, got, err, c.want)
		}
	}
}

// TestLiveListSizes checks that the server knows the sizes of earlier lists of a live source, for the
// memory that it reserves.
func TestLiveListSizes(t *testing.T) {
	var sizes *objectsizes.Sizes
	s := startOffline(t, sourced(registry.Cached[*v1.Part]{List: listOf()}, liveGadgets), func(c *serverConfig) {
		sizes = c.sizes
	}, nil)
	client := s.client("HTTP/2.0")
	defer client.CloseIdleConnections()
	lists := sizes.Lists(v1.Resource("gadgets"))
	if sizes.Lists(v1.Resource("parts")) != nil || lists == nil {
		t.Fatalf("want the sizes of lists of gadgets only")
	}
	const limit = "/apis/workshop.example.com/v1/gadgets?limit=1"
	if got := lists.Expected("", 1); got != 32<<20 {
		t.Errorf("before the first list: expected %d bytes, want the maximum", got)
	}
	client.want(t, http.MethodGet, limit, "", "200")
	if got := lists.Expected("", 1); got < 1<<10 || got > 2<<10 {
		t.Errorf("after a list of one object: expected %d bytes, want between 1 and 2 KiB", got)
	}
}

// TestLiveVerbs checks that discovery shows the verbs whose functions a live source has.
func TestLiveVerbs(t *testing.T) {
	for _, c := range []struct {
		source registry.Live[*v1.Gadget]
		want   string
	}{
		{registry.Live[*v1.Gadget]{Get: liveGadgets.Get}, `"kind":"Gadget","verbs":["get"]`},
		{registry.Live[*v1.Gadget]{List: liveGadgets.List}, `"kind":"Gadget","verbs":["list"]`},
	} {
		s := startOffline(t, sourced(registry.Cached[*v1.Part]{List: listOf()}, c.source), func(*serverConfig) {}, nil)
		client := s.client("HTTP/2.0")
		if got := client.get(t, "/apis/workshop.example.com/v1"); !strings.Contains(got, c.want) {
			t.Errorf("got %s, want %s", got, c.want)
		}
		client.CloseIdleConnections()
		s.stop()
	}
}

// TestLiveLimits checks that requests that wait for a live source are limited, that other kinds are
// served meanwhile, and that a list with an object twice fails.
func TestLiveLimits(t *testing.T) {
	source := liveGadgets
	source.MaxInFlight = 2
	source.List = func(context.Context, registry.LiveListOptions) ([]*v1.Gadget, string, error) {
		g := &v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: "twin"}}
		return []*v1.Gadget{g, g}, "", nil
	}
	s := startOffline(t, sourced(registry.Cached[*v1.Part]{List: listOf(newPart("bolt", ""))}, source),
		func(*serverConfig) {}, nil)
	client := s.client("HTTP/2.0")
	defer client.CloseIdleConnections()
	const api = "/apis/workshop.example.com/v1"
	if _, got, err := client.do(t.Context(), "GET", api+"/gadgets", ""); err != nil ||
		!strings.Contains(got, "the source returned /twin twice") {
		t.Errorf("list with an object twice: got %s, %v, want an error", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	for range source.MaxInFlight {
		waiting.Go(func() { _, _, _ = client.do(ctx, "GET", api+"/gadgets/slow", "") })
	}
	for end := time.Now().Add(time.Minute); client.try(t, http.MethodGet, api+"/gadgets/mine", "") != "429"; {
		if time.Now().After(end) {
			t.Fatal("requests that wait for the source are not limited")
		}
		<-time.After(10 * time.Millisecond)
	}
	client.want(t, http.MethodGet, api+"/parts/bolt", "", "200")
}

// TestSourceUIDs checks that a derived UID is equal in all servers, and one of the source is kept.
func TestSourceUIDs(t *testing.T) {
	own := newPart("gear", "A1")
	own.UID = "of-the-source"
	var first string
	for range 2 {
		s := startOffline(t, sourced(registry.Cached[*v1.Part]{List: listOf(own, newPart("bolt", ""))}, liveGadgets),
			func(*serverConfig) {}, nil)
		client := s.client("HTTP/2.0")
		var got []string
		for _, name := range []string{"bolt", "gear"} {
			var p v1.Part
			if err := json.Unmarshal([]byte(client.get(t, "/apis/workshop.example.com/v1/parts/"+name)), &p); err != nil {
				t.Fatal(err)
			}
			got = append(got, string(p.UID))
		}
		uids := fmt.Sprint(got)
		if first == "" {
			first = uids
		}
		if uids != first || got[0] == "" || got[1] != "of-the-source" {
			t.Errorf("got %s, want %s", uids, first)
		}
		client.CloseIdleConnections()
		s.stop()
	}
}

// TestBrokenSource checks that a server serves its other kinds if a source fails.
func TestBrokenSource(t *testing.T) {
	var polls atomic.Int32
	s := startOffline(t, sourced(registry.Cached[*v1.Part]{List: func(context.Context) iter.Seq2[*v1.Part, error] {
		switch polls.Add(1) {
		case 1:
			return listOf(newPart("bolt", ""))(nil)
		case 2:
			return listOf(newPart("Not_A_Name", ""))(nil)
		}
		panic("no source")
	}, Interval: time.Second, MaxAge: 2 * time.Second}, liveGadgets), func(*serverConfig) {}, nil)
	client := s.client("HTTP/2.0")
	defer client.CloseIdleConnections()
	for end := time.Now().Add(time.Minute); client.try(t, http.MethodGet, "/apis/workshop.example.com/v1/parts", "") ==
		"200" && time.Now().Before(end); {
		<-time.After(100 * time.Millisecond)
	}
	client.want(t, http.MethodGet, "/apis/workshop.example.com/v1/parts", "", "503")
	client.want(t, http.MethodGet, "/apis/workshop.example.com/v1/parts?watch=1", "", "503")
	client.want(t, http.MethodGet, "/apis/workshop.example.com/v1/gadgets", "", "200")
	client.want(t, http.MethodGet, "/readyz/sources", "", "500")
	client.want(t, http.MethodGet, "/readyz?exclude=sources", "", "200")
}

// TestInvalidObjects checks that a source with an invalid object is reported, and not served.
func TestInvalidObjects(t *testing.T) {
	var next atomic.Pointer[func(context.Context) iter.Seq2[*v1.Part, error]]
	has := func(parts ...*v1.Part) { next.Store(new(listOf(parts...))) }
	has(newPart("gear", ""))
	s := startOffline(t, sourced(registry.Cached[*v1.Part]{Interval: time.Second, MaxAge: 2 * time.Second,
		List: func(ctx context.Context) iter.Seq2[*v1.Part, error] { return (*next.Load())(ctx) }}, liveGadgets),
		func(*serverConfig) {}, nil)
	client := s.client("HTTP/2.0")
	defer client.CloseIdleConnections()
	for name, c := range map[string]struct {
		part *v1.Part
		want string
	}{
		"nil":     {nil, "an object that is nil or no Part"},
		"no name": {newPart("", ""), "metadata.name: Required value"},
		"namespace": {&v1.Part{ObjectMeta: metav1.ObjectMeta{Name: "bolt", Namespace: "demo"}},
			"metadata.namespace: Forbidden"},
		"label": {&v1.Part{ObjectMeta: metav1.ObjectMeta{Name: "bolt", Labels: map[string]string{"a": "not valid"}}},
			"metadata.labels: Invalid value"},
		"kind": {&v1.Part{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "bolt"}},
			"the source has a /v1, Kind=Pod /bolt, expected workshop.example.com/"},
	} {
		has(newPart("gear", ""), c.part)
		for end := time.Now().Add(time.Minute); ; {
			_, got, err := client.do(t.Context(), "GET", "/apis/workshop.example.com/v1/parts", "")
			if err == nil && strings.Contains(got, `"code":503`) && strings.Contains(got, c.want) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: got %s, %v, want 503 with %q", name, got, err, c.want)
			}
			<-time.After(100 * time.Millisecond)
		}
	}
}

// TestInvalidLiveObjects checks that invalid objects of a live source are errors, and are not served.
func TestInvalidLiveObjects(t *testing.T) {
	var next atomic.Pointer[v1.Gadget]
	source := registry.Live[*v1.Gadget]{
		Get: func(context.Context, string, string) (*v1.Gadget, error) { return next.Load(), nil },
		List: func(context.Context, registry.LiveListOptions) ([]*v1.Gadget, string, error) {
			return []*v1.Gadget{next.Load()}, "", nil
		},
	}
	s := startOffline(t, sourced(registry.Cached[*v1.Part]{List: listOf(newPart("bolt", ""))}, source),
		func(*serverConfig) {}, nil)
	client := s.client("HTTP/2.0")
	defer client.CloseIdleConnections()
	const api = "/apis/workshop.example.com/v1/gadgets"
	for name, c := range map[string]struct {
		gadget *v1.Gadget
		want   string
	}{
		"no name": {&v1.Gadget{}, "metadata.name: Required value"},
		"namespace": {&v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: "bolt", Namespace: "demo"}},
			"metadata.namespace: Forbidden"},
		"label": {&v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: "bolt", Labels: map[string]string{"a": "not valid"}}},
			"metadata.labels: Invalid value"},
		"kind": {&v1.Gadget{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: "bolt"}}, "the source has a /v1, Kind=Pod /bolt"},
	} {
		next.Store(c.gadget)
		for _, path := range []string{api, api + "/bolt"} {
			_, got, err := client.do(t.Context(), http.MethodGet, path, "")
			if err != nil || !strings.Contains(got, `"code":500`) || !strings.Contains(got, c.want) {
				t.Errorf("%s, %s: got %s, %v, want 500 with %q", name, path, got, err, c.want)
			}
		}
	}
}

// TestSourceErrors checks which sources are refused.
func TestSourceErrors(t *testing.T) {
	list := listOf()
	for name, c := range map[string]struct {
		cached registry.Cached[*v1.Part]
		live   registry.Live[*v1.Gadget]
		want   string
	}{
		"neither": {registry.Cached[*v1.Part]{}, liveGadgets, "kind Part: source: set either List or Watch"},
		"both":    {registry.Cached[*v1.Part]{List: list, Watch: func(context.Context, registry.Cache[*v1.Part]) error { return nil }}, liveGadgets, "set either List or Watch"},
		"age":     {registry.Cached[*v1.Part]{List: list, MaxAge: time.Second}, liveGadgets, "field MaxAge is 1s with the Interval 30s"},
		"bytes":   {registry.Cached[*v1.Part]{List: list, MaxBytes: -1}, liveGadgets, "field MaxBytes is -1"},
		"version": {registry.Cached[*v1.Part]{List: list,
			Update: func(_ context.Context, obj, _ *v1.Part) (*v1.Part, error) { return obj, nil }}, liveGadgets,
			"the field Update needs Version"},
		"calls": {registry.Cached[*v1.Part]{List: list}, registry.Live[*v1.Gadget]{Get: liveGadgets.Get, MaxInFlight: -1},
			"field MaxInFlight is -1"},
		"finalizers": {registry.Cached[*v1.Part]{List: list, KeepsMetadata: true}, liveGadgets,
			"the field KeepsMetadata needs Update"},
		"no verbs": {registry.Cached[*v1.Part]{List: list}, registry.Live[*v1.Gadget]{}, "kind Gadget: source: set Get or List"},
	} {
		if err := sourced(c.cached, c.live).Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// TestSourceFlags checks that a server has no flags for etcd if no kind is stored.
func TestSourceFlags(t *testing.T) {
	api := sourced(registry.Cached[*v1.Part]{List: listOf(), Visible: func(user.Info, *v1.Part) bool { return true }},
		liveGadgets)
	o := mustOptions(api)
	for section, flags := range o.Flags().FlagSets {
		for _, name := range []string{"data-dir", "etcd-servers", "storage-media-type"} {
			if flags.Lookup(name) != nil {
				t.Errorf("section %s has --%s", section, name)
			}
		}
	}
	if o.HasStorage() || !mustOptions(testAPI).HasStorage() {
		t.Error("HasStorage is wrong")
	}
}

// TestServingCertificateReload checks that a server with and one without etcd present a new
// certificate from its file without a restart.
func TestServingCertificateReload(t *testing.T) {
	for name, api := range map[string]API{
		"etcd":    testAPI,
		"sources": sourced(registry.Cached[*v1.Part]{List: listOf()}, liveGadgets),
	} {
		t.Run(name, func(t *testing.T) {
			s := startOffline(t, api, func(*serverConfig) {}, nil)
			ca, err := certs.ReadCA(filepath.Join(s.dir, certs.ServingCADir), time.Now)
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := ca.IssueServing(certs.ServingOptions{DNSNames: []string{s.tls.ServerName}})
			if err != nil {
				t.Fatal(err)
			}
			if err := leaf.Write(filepath.Join(s.dir, certs.ServingDir), certs.Bundle{ca.Certificate}); err != nil {
				t.Fatal(err)
			}
			dialer, deadline := tls.Dialer{Config: s.tls.Clone()}, time.After(time.Minute)
			for {
				conn, err := dialer.DialContext(t.Context(), "tcp", s.address)
				if err != nil {
					t.Fatal(err)
				}
				presented := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
				_ = conn.Close()
				if presented.Equal(leaf.Certificate) {
					return
				}
				select {
				case <-deadline:
					t.Fatal("the server still presents the old certificate after a minute")
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
}
