// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// walkBound is the maximum peak memory of a request that writes nothing, in KiB beyond GET
// /readyz.
const walkBound = 32 << 10

// costly returns bodies of 3 MiB, by content type, that cost their decoder the most.
func costly() map[string][]byte {
	const size = 3<<20 - 1<<10
	values := func(head, value, tail string) []byte {
		return []byte(head + strings.Repeat(value, (size-len(head)-len(tail))/len(value)) + tail)
	}
	const object = `{"apiVersion":"workshop.example.com/v1","kind":"Gadget","metadata":{"name":"w"},"x":[`
	return map[string][]byte{
		"application/json":                    values(object, "1,", "1]}"),
		"application/yaml":                    []byte(aliases()),
		"application/vnd.kubernetes.protobuf": values("k8s\x00\x0a\x00\x12", "\xff\xff\xff\x7f", ""),
		"application/cbor":                    values("\xd9\xd9\xf7\x9b\x00\x00\x00\x00\x7f\xff\xff\xff", "\xa0", ""),
		string(types.ApplyYAMLPatchType):      []byte(aliases()),
		string(types.ApplyCBORPatchType):      values("\xd9\xd9\xf7\x9b\x00\x00\x00\x00\x7f\xff\xff\xff", "\xa0", ""),
		string(types.MergePatchType):          values(`{"x":[`, "1,", "1]}"),
		string(types.StrategicMergePatchType): values(`{"x":[`, "1,", "1]}"),
		string(types.JSONPatchType): values("[", `{"op":"test","path":"/kind","value":1},`,
			`{"op":"test","path":"/kind","value":1}]`),
		"text/plain; note=not-a-type-of-the-API": values("", "x", ""),
	}
}

// walkPaths returns the paths in the server's index, and the resources of its discovery.
func walkPaths(t *testing.T, admin rest.Interface) []string {
	t.Helper()
	get := func(path string, into any) {
		t.Helper()
		data, err := admin.Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatalf("GET %s: %v in %.300s", path, err, data)
		}
	}
	var index struct{ Paths []string }
	get("/", &index)
	paths := append(index.Paths, "/", "/nowhere", "/readyz/")
	for _, path := range index.Paths {
		if strings.Count(path, "/") != 3 || !strings.HasPrefix(path, "/apis/") {
			continue
		}
		var list struct {
			Resources []struct {
				Name       string
				Namespaced bool
			}
		}
		get(path, &list)
		for _, r := range list.Resources {
			name, subresource, _ := strings.Cut(r.Name, "/")
			base := path + "/" + name
			if r.Namespaced {
				base = path + "/namespaces/default/" + name
			}
			if subresource == "" {
				paths = append(paths, base, base+"/w")
			} else {
				paths = append(paths, base+"/w/"+subresource)
			}
		}
	}
	if len(paths) < 50 {
		t.Fatalf("got %d paths, want at least 50: %v", len(paths), paths)
	}
	return paths
}

// TestS30AllPaths sends a body of each content type with each method to every path that the server
// serves; in short mode, a third of them. The clients are anonymous, an unprivileged user and a user
// who may read everything. No request costs more than a read.
func TestS30AllPaths(t *testing.T) {
	admin, err := shared.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	allow(t, kubernetes.NewForConfigOrDie(admin), "reader",
		rbacv1.PolicyRule{APIGroups: []string{gadgets.Group}, Resources: []string{"*"},
			Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{NonResourceURLs: []string{"*"}, Verbs: []string{"get", "head", "options"}})
	index, err := metricsClient()
	if err != nil {
		t.Fatal(err)
	}
	paths := walkPaths(t, index)
	bodies := costly()
	probe, err := shared.Servers[0].Client(shared)
	if err != nil {
		t.Fatal(err)
	}
	defer probe.CloseIdleConnections()
	for _, user := range []string{"", "mallory", "reader"} {
		t.Run("user="+user, func(t *testing.T) {
			config := shared.Servers[0].Config(shared)
			config.NextProtos = []string{"http/1.1"}
			if user != "" {
				credentials, err := shared.Config(user)
				if err != nil {
					t.Fatal(err)
				}
				config.CertFile, config.KeyFile = credentials.CertFile, credentials.KeyFile
			}
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			defer client.CloseIdleConnections()
			n, sent, most, statusCounts, began := 0, 0, 0, map[int]int{}, time.Now()
			for _, path := range paths {
				for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost,
					http.MethodPut, http.MethodPatch, http.MethodDelete} {
					for _, contentType := range slices.Sorted(maps.Keys(bodies)) {
						if n++; testing.Short() && n%3 > 0 {
							continue // another third for the next path
						}
						what := fmt.Sprintf("%s %s with %s", method, path, contentType)
						var status, ready, peak int
						for range 3 { // garbage of earlier requests can grow meanwhile, but not each time
							ready = peakOf(t, func() { send(t, probe, http.MethodGet, "/readyz", "", nil) })
							peak = peakOf(t, func() { status = send(t, client, method, path, contentType, bodies[contentType]) })
							sent++
							statusCounts[status]++
							if peak-ready <= walkBound {
								break
							}
						}
						most = max(most, peak-ready)
						if peak-ready > walkBound {
							t.Errorf("%s: %d, VmHWM %d MiB, after GET /readyz %d MiB; want at most %d MiB more", what,
								status, peak>>10, ready>>10, walkBound>>10)
						}
						writes := method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
						if writes && strings.HasPrefix(path, "/apis/") && status >= 200 && status < 300 {
							t.Errorf("%s: %d, want it refused", what, status)
						}
					}
				}
			}
			t.Logf("%d requests to %d paths in %s, responses %v, at most %d MiB more than GET /readyz", sent, len(paths),
				time.Since(began).Round(time.Second), statusCounts, most>>10)
		})
	}
	// Connections whose bodies were not read keep the slots of this address for a moment.
	shared.Eventually(t, "the connections of the walk to end", envtest.WaitTimeout, tryHealth)
}

// peakOf returns the VmHWM of the server while f runs, in KiB.
func peakOf(t *testing.T, f func()) int {
	t.Helper()
	if err := shared.Servers[0].ResetVmHWM(); err != nil {
		t.Fatal(err)
	}
	f()
	peak, err := shared.Servers[0].VmHWM()
	if err != nil {
		t.Fatal(err)
	}
	return peak
}

// send returns the status code of the response, or 0 if it was lost with the connection, which the
// server closes while the client still sends the body.
func send(t *testing.T, client *http.Client, method, path, contentType string, body []byte) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), envtest.WaitTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, shared.Servers[0].URL+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			t.Errorf("%s %s with %s: no response within %s", method, path, contentType, envtest.WaitTimeout)
		}
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}
