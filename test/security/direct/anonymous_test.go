// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestS14NoCredentials checks that an unauthenticated client can read only the health endpoints.
// The test takes the paths from the server's own index, as an administrator.
func TestS14NoCredentials(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin := issue(t, readCA(t, "client-ca"), "admin", "system:masters")
	var index struct{ Paths []string }
	if got := s.try(admin, http.MethodGet, "/", nil, ""); json.Unmarshal([]byte(got.body), &index) != nil ||
		len(index.Paths) < 20 {
		t.Fatalf("GET / as an administrator: %s, want a list of paths", got)
	}
	open := []string{"/healthz", "/livez", "/readyz"}
	paths := append(index.Paths, "/", protected, protected+"/x", whoami,
		"/apis/workshop.example.com/v1/namespaces/default/widgets/x/console",
		"/openapi/v3/apis/workshop.example.com/v1", "/version", "/metrics", "/metrics/slis", "/debug/pprof/",
		"/debug/flags/v", "/logs", "/configz", "/statusz", "/flagz", "/nowhere", "/readyz/")
	for _, path := range paths {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
			http.MethodPatch, http.MethodDelete, http.MethodOptions, "BREW"} {
			got := s.try(nil, method, path, nil, "")
			if slices.Contains(open, path) {
				if got.status != http.StatusOK && got.status != http.StatusMethodNotAllowed {
					t.Errorf("%s %s: %s, want 200 or 405", method, path, got)
				}
				continue
			}
			got.want(t, method+" "+path, http.StatusUnauthorized)
		}
	}
	// The three health endpoints disclose nothing else.
	for _, path := range open {
		if got := s.try(nil, http.MethodGet, path, nil, ""); got.body != "ok" {
			t.Errorf("GET %s: %s, want ok", path, got)
		}
	}
	s.refusesBodies(t)
	for _, spec := range s.access(t) {
		if spec.User == "system:anonymous" && !slices.Contains(open,
			strings.Split(spec.NonResourceAttributes.Path, "?")[0]) {
			t.Errorf("SubjectAccessReview for an anonymous request of %v, want none", spec.NonResourceAttributes)
		}
	}
}

// refusesBodies sends bodies without credentials. The server neither waits for them nor reads
// them.
func (s *server) refusesBodies(t *testing.T) {
	t.Helper()
	const at = 5 * time.Second // at once on a busy machine; no timeout of the server
	large := strings.Repeat("a,", maxBody/2)
	for _, tc := range []struct{ name, contentType, length, body string }{
		{"JSON", jsonType, "", gadget("x")},
		{"YAML of aliases", yamlType, "", laughs("")},
		{"YAML of 3 MiB of values", yamlType, "", "[" + large[2:] + "]"},
		{"applied YAML of 3 MiB of values", apply, "", "[" + large[2:] + "]"},
		{"3 MiB in chunks", jsonType, "Transfer-Encoding: chunked",
			fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(large), large)},
		{"chunks that do not end", jsonType, "Transfer-Encoding: chunked", "1\r\n{\r\n"},
		{"a byte less than announced", jsonType, fmt.Sprintf("Content-Length: %d", len(gadget("x"))+1), gadget("x")},
		{"a tebibyte that does not come", jsonType, fmt.Sprintf("Content-Length: %d", 1<<40), "{"},
		{"nothing of what is announced", jsonType, "Content-Length: 200000", ""},
	} {
		for _, method := range []string{http.MethodPost, http.MethodPatch, http.MethodGet} {
			what := tc.name + " with " + method
			check := s.costs(t, what, time.Second, 32)
			conn := s.dial(t, nil, "http/1.1")
			length := tc.length
			if length == "" {
				length = fmt.Sprintf("Content-Length: %d", len(tc.body))
			}
			began := time.Now()
			if err := conn.SetDeadline(began.Add(2 * at)); err != nil {
				t.Fatal(err)
			}
			// The server may close the connection before it has all.
			go func() {
				_, _ = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\n%s\r\n\r\n%s", method,
					protected, tc.contentType, length, tc.body)
			}()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			read(resp, err).want(t, what, http.StatusUnauthorized)
			_, _ = io.Copy(io.Discard, conn)
			if took := time.Since(began); took > at {
				t.Errorf("%s: the connection was closed after %s, want at most %s", what, took, at)
			}
			check()
			if tc.length != "" {
				continue
			}
			// HTTP/2: the connection ends with the response, so a second request finds it closed.
			check = s.costs(t, what+" over HTTP/2", time.Second, 32)
			open, header := oneConnection(t, nil), http.Header{"Content-Type": {tc.contentType}}
			s.send(open, method, protected, header, tc.body).want(t, what+" over HTTP/2", http.StatusUnauthorized)
			s.send(open, method, protected, header, tc.body).want(t, what+" again", 0)
			check()
		}
	}
}
