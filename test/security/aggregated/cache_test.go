// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"example.com/extension-apiserver/pkg/envtest"
)

// cacheTTL is how long the server of TestS25Cache caches a decision: longer than the requests that
// must hit the cache, on a busy machine.
const cacheTTL = 3 * time.Second

// TestS25Cache checks that a decision is cached for exactly its user, UID, groups, extra and
// request, and no longer than the TTL.
func TestS25Cache(t *testing.T) {
	t.Parallel()
	log, options, err := audited(t.TempDir(), cacheTTL.String())
	if err != nil {
		t.Fatal(err)
	}
	e := envtest.New(t, options)
	t.Run("key", func(t *testing.T) { testCacheKey(t, e, log) })
	t.Run("revocation", func(t *testing.T) { testRevocation(t, e) })
	t.Run("large", func(t *testing.T) { testLarge(t, e, log) })
}

func testCacheKey(t *testing.T, e *envtest.Environment, log auditLogs) {
	name := unique("alice")
	readers := unique("readers")
	allow(t, e, ofGroup(readers), "", everything, everywhere)
	base := &user.DefaultInfo{Name: name, UID: "1", Groups: []string{readers},
		Extra: map[string][]string{"scope": {"a"}}}
	get := func(who *user.DefaultInfo, path string) int {
		return direct(t, e, who).Do(t, http.MethodGet, path, nil, nil).Status
	}
	// The same request many times: if there are as many reviews as requests, nothing is cached and
	// the rest proves nothing.
	const times = 20
	for range times {
		if got := get(base, current+"/gadgets"); got != http.StatusOK {
			t.Fatalf("list with the permission: %d, want 200", got)
		}
	}
	reviewed := len(log.checks(t, e)[name])
	if reviewed == 0 || reviewed >= times {
		t.Fatalf("%d SubjectAccessReviews for %d equal requests, want fewer and at least one", reviewed, times)
	}
	for _, tc := range []struct {
		name   string
		who    *user.DefaultInfo
		path   string
		status int
	}{
		{"another UID", &user.DefaultInfo{Name: name, UID: "2", Groups: base.Groups, Extra: base.Extra}, current +
			"/gadgets", 200},
		{"one more group", &user.DefaultInfo{Name: name, UID: "1", Groups: []string{readers, "x"}, Extra: base.Extra},
			current + "/gadgets", 200},
		{"no group", &user.DefaultInfo{Name: name, UID: "1", Extra: base.Extra}, current + "/gadgets", 403},
		{"another group", &user.DefaultInfo{Name: name, UID: "1", Groups: []string{readers + "x"}, Extra: base.Extra},
			current + "/gadgets", 403},
		{"another extra", &user.DefaultInfo{Name: name, UID: "1", Groups: base.Groups,
			Extra: map[string][]string{"scope": {"b"}}}, current + "/gadgets", 200},
		{"no extra", &user.DefaultInfo{Name: name, UID: "1", Groups: base.Groups}, current + "/gadgets", 200},
		{"another verb", base, current + "/gadgets?watch=1&timeoutSeconds=1", 200},
		{"another name", base, current + "/gadgets/nobody", 404},
		{"another resource", base, current + "/widgets", 200},
		{"another version", base, "/apis/" + group + "/v1alpha1/widgets", 200},
		{"a selector", base, current + "/gadgets?labelSelector=a", 200},
		{"no resource", base, "/metrics", 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := len(log.checks(t, e)[name])
			if got := get(tc.who, tc.path); got != tc.status {
				t.Errorf("status %d, want %d", got, tc.status)
			}
			if after := len(log.checks(t, e)[name]); after != before+1 {
				t.Errorf("%d SubjectAccessReviews, want one: different requests must not share a decision", after-before)
			}
		})
	}
	if got := get(&user.DefaultInfo{Name: name + "x", UID: "1", Extra: base.Extra},
		current+"/gadgets"); got != http.StatusForbidden {
		t.Errorf("another user: %d, want 403", got)
	}
}

// testRevocation checks that kube-apiserver rejects at once what the server still caches. At the
// server's own port a revocation takes effect when the cached decision expires. A grant after a
// cached denial does too.
func testRevocation(t *testing.T, e *envtest.Environment) {
	who := &user.DefaultInfo{Name: unique("alice")}
	// A server that knows neither of them yet: connections of the other test do not matter.
	server, front := direct(t, e, who), through(t, e, who)
	get := func(s envtest.Endpoint) int { return s.Do(t, http.MethodGet, current+"/gadgets", nil, nil).Status }
	if got := get(server); got != http.StatusForbidden {
		t.Fatalf("before the permission exists: %d, want 403", got)
	}
	revoke := allow(t, e, ofUser(who.Name), "", everything)
	<-time.After(cacheTTL)
	if got := get(server); got != http.StatusOK {
		t.Errorf("a permission that is older than the cached denial: %d, want 200", got)
	}
	if got := get(front); got != http.StatusOK {
		t.Errorf("through kube-apiserver: %d, want 200", got)
	}
	revoke()
	if got := get(front); got != http.StatusForbidden {
		t.Errorf("through kube-apiserver, after it has removed the permission: %d, want 403", got)
	}
	<-time.After(cacheTTL)
	if got := get(server); got != http.StatusForbidden {
		t.Errorf("a permission that was removed before the TTL of a cached decision: %d, want 403", got)
	}
}

// testLarge checks that decisions on large requests are not cached, so that a client cannot fill
// the memory.
func testLarge(t *testing.T, e *envtest.Environment, log auditLogs) {
	who := &user.DefaultInfo{Name: unique("alice"), Groups: []string{unique("readers")}}
	allow(t, e, ofGroup(who.Groups[0]), "", everything)
	server := direct(t, e, who)
	for _, tc := range []struct {
		length int
		cached bool
	}{{200, true}, {20_000, false}} {
		const times = 5
		path := current + "/gadgets/" + strings.Repeat("x", tc.length)
		before := len(log.checks(t, e)[who.Name])
		for range times {
			if got := server.Do(t, http.MethodGet, path, nil, nil).Status; !slices.Contains([]int{400, 404}, got) {
				t.Fatalf("a name of %d bytes: %d, want 404", tc.length, got)
			}
		}
		reviewed := len(log.checks(t, e)[who.Name]) - before
		if cached := reviewed < times; cached != tc.cached {
			t.Errorf("a name of %d bytes: %d SubjectAccessReviews for %d requests; want it cached: %t", tc.length, reviewed,
				times, tc.cached)
		}
	}
}
