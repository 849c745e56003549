// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"

	authorizationv1 "k8s.io/api/authorization/v1"
)

const (
	// maxBody is the maximum that the library reads of a body (MaxRequestBodyBytes of its
	// configuration).
	maxBody = 3 << 20
	// maxYAML is the limit for YAML, and for server-side apply.
	maxYAML = 768 << 10
)

// endless is a body of spaces that never ends. It counts the bytes that were read.
type endless struct{ taken atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	copy(p, bytes.Repeat([]byte(" "), len(p)))
	// A limit, so that the test ends if the server does not stop.
	if e.taken.Add(int64(len(p))) > 1<<30 {
		return 0, errors.New("the server took 1 GiB")
	}
	return len(p), nil
}

func (e *endless) Close() error { return nil }

// bodies are requests that have a body, by operation. The test pads each body to the required
// length.
var bodies = []struct {
	name, method, path, contentType, body string
	accepted, limit                       int
}{
	{"create", http.MethodPost, protected + "?dryRun=All", jsonType, gadget("new"), http.StatusCreated, maxBody},
	{"create from YAML", http.MethodPost, protected + "?dryRun=All", yamlType, gadget("new"),
		http.StatusCreated, maxYAML},
	{"update", http.MethodPut, protected + "/there?dryRun=All", jsonType, gadget("there"), http.StatusOK, maxBody},
	{"merge patch", http.MethodPatch, protected + "/there?dryRun=All", merge, `{"spec":{"precision":1}}`,
		http.StatusOK, maxBody},
	{"apply", http.MethodPatch, protected + "/there" + force + "&dryRun=All", apply, gadget("there"),
		http.StatusOK, maxYAML},
	{"delete", http.MethodDelete, protected + "/there?dryRun=All", jsonType,
		`{"apiVersion":"v1","kind":"DeleteOptions","dryRun":["All"]}`, http.StatusOK, maxBody},
	{"delete collection", http.MethodDelete, protected + "?dryRun=All", jsonType,
		`{"apiVersion":"v1","kind":"DeleteOptions","dryRun":["All"]}`, http.StatusOK, maxBody},
}

func padded(body string, length int) string { return body + strings.Repeat(" ", length-len(body)) }

// TestS29Bodies checks the limit of request bodies: 3 MiB, and 768 KiB for bodies of the YAML
// parser. The server reads a body of this size, and rejects one more byte, with or without a
// Content-Length. It reads no more than the limit of a body that does not end.
func TestS29Bodies(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.decide(t, func(authorizationv1.SubjectAccessReviewSpec) http.HandlerFunc { return reviewStatus(`"allowed":true`) })
	if got := s.keep(t, frontProxy(t)).try(http.MethodPost, protected, http.Header{"X-Remote-User": {"ann"}},
		gadget("there")); got.status != http.StatusCreated {
		t.Fatalf("create the gadget: %s", got)
	}
	onTheWay := socketBuffers(t) + 1<<20 // and the buffers of net/http at both ends
	check := s.costs(t, "56 bodies of 1 or 3 MiB and 14 that do not end", time.Minute, 200)
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		ann := s.keep(t, frontProxy(t))
		ann.Transport.(*http.Transport).ForceAttemptHTTP2 = protocol == "HTTP/2"
		for _, tc := range bodies {
			t.Run(protocol+"/"+tc.name, func(t *testing.T) {
				send := func(body io.Reader) response {
					// Each request has its own client timeout; the server reads its maximum long
					// before.
					ctx, cancel := context.WithTimeout(t.Context(), envtest.WaitTimeout)
					defer cancel()
					req, err := http.NewRequestWithContext(ctx, tc.method, ann.base+tc.path, body)
					if err != nil {
						t.Fatal(err)
					}
					req.Header = http.Header{"X-Remote-User": {"ann"}, "Content-Type": {tc.contentType}}
					return read(ann.Do(req))
				}
				for _, length := range []struct{ bytes, want int }{{tc.limit, tc.accepted},
					{tc.limit + 1, http.StatusRequestEntityTooLarge}} {
					body := padded(tc.body, length.bytes)
					send(strings.NewReader(body)).want(t, fmt.Sprintf("a body of %d bytes", length.bytes), length.want)
					// A reader of unknown length is sent in chunks.
					send(io.MultiReader(strings.NewReader(body))).want(t,
						fmt.Sprintf("a body of %d bytes in chunks", length.bytes), length.want)
				}
				body := &endless{}
				got := send(body)
				// The response may be lost with the connection that the server closes.
				if got.status != http.StatusRequestEntityTooLarge && got.status != 0 {
					t.Errorf("a body that does not end: %s, want 413 or a closed connection", got)
				}
				if taken, most := body.taken.Load(), int64(tc.limit)+onTheWay; taken > most {
					t.Errorf("a body that does not end: the server took %d bytes, want %d and at most %d that were "+
						"on their way", taken, tc.limit, onTheWay)
				}
			})
		}
	}
	check()
}

// socketBuffers returns how many bytes the kernel may hold between a sender and a receiver that
// stopped to read.
func socketBuffers(t *testing.T) int64 {
	t.Helper()
	var sum int64
	for _, name := range []string{"tcp_wmem", "tcp_rmem"} {
		data, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var least, begin, most int64
		if _, err := fmt.Sscan(string(data), &least, &begin, &most); err != nil {
			t.Fatalf("%s has %q, want three numbers: %v", name, data, err)
		}
		sum += most
	}
	return sum
}

// TestS29WrongContentLength checks that a request has no effect if its Content-Length does not
// match its body.
func TestS29WrongContentLength(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.decide(t, func(authorizationv1.SubjectAccessReviewSpec) http.HandlerFunc { return reviewStatus(`"allowed":true`) })
	body := gadget("liar")
	for _, tc := range []struct {
		name, lengths string
		ends          bool // the client closes its side where more should come
		want          int  // 0: any response except success
	}{
		{"too long", fmt.Sprintf("Content-Length: %d", len(body)+1), true, 0},
		{"a tebibyte", fmt.Sprintf("Content-Length: %d", 1<<40), true, 0},
		{"too short", fmt.Sprintf("Content-Length: %d", len(body)-1), false, http.StatusBadRequest},
		{"nothing", "Content-Length: 0", false, http.StatusBadRequest},
		{"none", "X-None: x", false, http.StatusBadRequest},
		{"negative", "Content-Length: -1", false, http.StatusBadRequest},
		{"no number", "Content-Length: 0x10", false, http.StatusBadRequest},
		{"more than a number holds", "Content-Length: 18446744073709551617", false, http.StatusBadRequest},
		{"two that differ", fmt.Sprintf("Content-Length: %d\r\nContent-Length: %d", len(body), len(body)-1), false,
			http.StatusBadRequest},
		{"one, and chunks that are none", fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked", len(body)),
			true, 0},
		{"the truth", fmt.Sprintf("Content-Length: %d", len(body)), false, http.StatusCreated},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn := s.dial(t, frontProxy(t), "http/1.1")
			head := "POST " + protected +
				" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Remote-User: ann\r\nContent-Type: " +
				"application/json\r\n"
			if _, err := io.WriteString(conn, head+tc.lengths+"\r\n\r\n"+body); err != nil {
				t.Fatal(err)
			}
			if tc.ends {
				if err := conn.CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			got := read(resp, err)
			if tc.want != 0 && got.status != tc.want || tc.want == 0 && got.status/100 == 2 {
				t.Errorf("%s; want %d (0: no success)", got, tc.want)
			}
			there := s.try(frontProxy(t), http.MethodGet, protected+"/liar", forged(), "")
			if created := there.status == http.StatusOK; created != (tc.want == http.StatusCreated) {
				t.Errorf("the gadget exists: %t (%s)", created, there)
			}
		})
	}
}
