// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"
)

const (
	// generatedAtATime is how many equal requests are sent at a time.
	generatedAtATime = 4
	// mostMemory, in KiB, and mostCPU limit the cost of one request.
	mostMemory = 64 << 10
	mostCPU    = time.Second
)

// generator makes requests from random choices.
type generator struct{ *rand.Rand }

func (g generator) of(values ...string) string { return values[g.IntN(len(values))] }

// request is one of any verb, encoding, selector, size, subresource and permission.
func (g generator) request() (user string, r request) {
	user = g.of("mallory", "reader", "reader", "writer", "writer", "writer")
	version := g.of("v1", "v1", "v1beta1", "v1alpha1")
	namespace, name := g.of("namespaces/large/", "namespaces/escaped/", "namespaces/small/", ""), ""
	query := []string{}
	r.accept = g.of(jsonType, protobufType, "application/yaml", jsonType+table, protobufType+metadata,
		jsonType+metadata, "application/cbor", "*/*", "")
	switch r.method = g.of(http.MethodGet, http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodPatch, http.MethodDelete); r.method {
	case http.MethodGet, http.MethodDelete:
		if g.IntN(2) == 0 && namespace != "" {
			name = g.of("/w1", "/w0", "/s0-1", "/none") + g.of("", "", "/status", "/scale")
		} else {
			query = append(query, g.selector()...)
		}
	case http.MethodPost:
		namespace = "namespaces/small/"
	default:
		namespace, name = "namespaces/small/", g.of("/s0-1", "/none")+g.of("", "", "/status", "/scale")
	}
	if r.method != http.MethodGet {
		query = append(query, "dryRun=All", "fieldManager=generator",
			"fieldValidation="+g.of("Ignore", "Warn", "Strict"))
		r.contentType, r.body = g.body(r.method, version)
	}
	if strings.Contains(r.contentType, "apply") {
		query = append(query, "force=true")
	}
	if g.IntN(8) == 0 {
		r.timeout = 100 * time.Millisecond
		query = append(query, "timeout=1s")
	}
	r.path = fmt.Sprintf("/apis/workshop.example.com/%s/%swidgets%s?%s", version, namespace, name,
		strings.Join(query, "&"))
	return user, r
}

// selector are parameters of a list, or make it a watch.
func (g generator) selector() (query []string) {
	for range g.IntN(3) {
		query = append(query, g.of("limit=1", "limit=500", "limit=100000", "resourceVersion=0",
			"resourceVersion="+filledVersion,
			"resourceVersionMatch=Exact&resourceVersion="+filledVersion, "includeObject=Object", "includeObject=None",
			"watch=1&timeoutSeconds=1",
			"watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
			"labelSelector="+many("a", 1+g.size(20_000)), "labelSelector=a+in+("+many("x", 1+g.size(10_000))+")",
			"fieldSelector=metadata.name%3Dw1", "fieldSelector=metadata.name%3Dw0", "fieldSelector="+many("metadata.name!%3Dx", 1+g.size(2000))))
	}
	return query
}

// size is small more often than large.
func (g generator) size(most int) int {
	return int(float64(most) * g.Float64() * g.Float64())
}

// body is a document that costs much where it fits.
func (g generator) body(method, version string) (contentType string, body []byte) {
	const most = 3<<20 - 200
	part := g.of("1", `""`, "{}", "[]", `{"name":"a"}`, `{"type":"a"}`, `{"controller":true}`, `"a":1`, `"a":{}`,
		`{"a":{"b":[1]}}`, string(nestedValue("", 1+g.size(9_000), g.size(100_000), "")),
		`{"`+strings.Repeat("x", 1+g.size(100_000))+`":{"a":1,"a":1}}`, `"`+strings.Repeat("x", 1+g.size(100_000))+`"`)
	content := many(part, 1+g.size(most/(len(part)+1)))
	if g.IntN(6) == 0 {
		content = distinct(1 + g.size(60_000))
	}
	switch {
	case strings.HasPrefix(part, `"a":`):
		content = "{" + content + "}"
	default:
		content = "[" + content + "]"
	}
	path := g.of("x", "metadata/finalizers", "metadata/ownerReferences", "metadata/labels", "metadata/annotations",
		"metadata/managedFields",
		"spec/parts", "spec/x", "status/conditions", "spec/model")
	outer, inner, nested := strings.Cut(path, "/")
	member := fmt.Sprintf("%q:%s", outer, content)
	if nested {
		member = fmt.Sprintf("%q:{%q:%s}", outer, inner, content)
	}
	whole := fmt.Appendf(nil, `{"apiVersion":"workshop.example.com/%s","kind":"Widget",%s}`, version, member)
	if method != http.MethodPatch {
		switch g.IntN(6) {
		case 0:
			return protobufType, emptyParts(1 + g.size(1_500_000))
		case 1:
			return "application/yaml", whole
		}
		return jsonType, whole
	}
	switch contentType = g.of("application/json-patch+json", "application/merge-patch+json",
		"application/strategic-merge-patch+json", "application/apply-patch+yaml"); contentType {
	case "application/json-patch+json":
		operation := fmt.Sprintf(`{"op":%q,"path":"/%s%s","value":1,"from":"/%s"}`,
			g.of("add", "remove", "replace", "copy", "test"), path, g.of("", "/0", "/-"), path)
		return contentType, fmt.Appendf(nil, `[{"op":"add","path":"/%s","value":%s},%s]`, path, content,
			many(operation, 1+g.size(10_000)))
	case "application/apply-patch+yaml":
		return contentType, whole
	}
	return contentType, []byte("{" + member + "}")
}

// TestGeneratedRequests looks for a request of which a few cost more memory or CPU than the limits,
// for as long as attacks last.
func TestGeneratedRequests(t *testing.T) {
	reader, writer := costlyUsers(t)
	users := map[string]client{"reader": reader, "writer": writer, "mallory": clientOf(t, shared.User(t, "mallory"))}
	lasts, err := time.ParseDuration(attackFor())
	if err != nil {
		t.Fatal(err)
	}
	// With ATTACK_SEED=SEED/REQUEST the test repeats what it sent before, from a request on.
	seed, first := uint64(time.Now().UnixNano()), 0
	if configured := os.Getenv("ATTACK_SEED"); configured != "" {
		if _, err := fmt.Sscanf(configured, "%d/%d", &seed, &first); err != nil {
			t.Fatalf("read ATTACK_SEED=%s: %v", configured, err)
		}
	}
	t.Logf("ATTACK_SEED=%d/%d", seed, first)
	before := peakMemory(t)
	sent, statuses, most, mostTime := 0, map[int]int{}, 0, time.Duration(0)
	for began := time.Now(); time.Since(began) < lasts && !t.Failed(); sent++ {
		user, r := generator{rand.New(rand.NewPCG(seed, uint64(first+sent)))}.request() //nolint:gosec // it can be repeated
		memory, cpu, err := costOf(t, users[user], r, generatedAtATime, statuses)
		// The server may serve some of them one after the other, so one alone may take all the memory. It
		// is sent again, because garbage of earlier requests may have been collected meanwhile.
		for again := 0; err == nil && again < 2 && (memory > mostMemory || cpu > mostCPU); again++ {
			var memoryAgain int
			var cpuAgain time.Duration
			memoryAgain, cpuAgain, err = costOf(t, users[user], r, 1, statuses)
			memory, cpu = min(memory, memoryAgain), min(cpu, cpuAgain)
		}
		if err != nil {
			t.Errorf("after the request ATTACK_SEED=%d/%d: %v", seed, first+sent, err)
		}
		most, mostTime = max(most, memory), max(mostTime, cpu)
		if memory > mostMemory || cpu > mostCPU {
			t.Errorf("ATTACK_SEED=%d/%d: %s as %s costs %d MiB and %s, want at most %d "+
				"MiB and %s: %s %.300s as %q, %d bytes of %q: %.200s",
				seed, first+sent, r.method, user, memory>>10, cpu, mostMemory>>10, mostCPU, r.method,
				r.path, r.accept, len(r.body), r.contentType, r.body)
		}
	}
	if killed, err := container.killed(); killed > 0 || err != nil {
		t.Errorf("the kernel killed %d processes: %v", killed, err)
	}
	t.Logf("%d requests, %d at a time, with seed %d: statuses %v; the costliest took %d MiB, or %s; the server has "+
		"%d MiB, %d before",
		sent, generatedAtATime, seed, statuses, most>>10, cmp.Or(mostTime, 0), peakMemory(t)>>10, before>>10)
}

// costOf sends a request n times concurrently, and returns the memory in KiB that all cost, and the CPU
// time of each. It returns an error if the server no longer responds.
func costOf(t *testing.T, user client, r request, n int, statuses map[int]int) (memory int, cpu time.Duration,
	err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*envtest.WaitTimeout)
	defer cancel()
	if err := shared.Servers[0].ResetVmHWM(); err != nil {
		return 0, 0, err
	}
	memoryBefore, err := shared.Servers[0].VmHWM()
	if err != nil {
		return 0, 0, err
	}
	cpuBefore, err := cpuTime(t)
	if err != nil {
		return 0, 0, err
	}
	var mutex sync.Mutex
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			status, _, err := user.send(ctx, r)
			mutex.Lock()
			defer mutex.Unlock()
			statuses[status]++
			if err != nil && ctx.Err() != nil {
				t.Errorf("no response: %v", err)
			}
		})
	}
	all.Wait()
	cpuAfter, err := cpuTime(t)
	if err != nil {
		return 0, 0, err
	}
	memoryAfter, err := shared.Servers[0].VmHWM()
	return memoryAfter - memoryBefore, (cpuAfter - cpuBefore) / time.Duration(n), err
}
