// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"

	"golang.org/x/net/http2"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"example.com/extension-apiserver/sample/apis/workshop/install"
)

var gadgets = install.GroupVersions()[0].WithResource("gadgets")

// TestS37Unread checks that lists and watches whose client does not read release their APF seats,
// which others need.
func TestS37Unread(t *testing.T) {
	t.Parallel()
	admin, err := shared.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	allowReads(t, kubernetes.NewForConfigOrDie(admin), "idler")
	// 20 MiB: more than the buffers of two sockets hold.
	client := dynamic.NewForConfigOrDie(admin).Resource(gadgets)
	for i := range 100 {
		if _, err := client.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gadgets.GroupVersion().String(), "kind": "Gadget",
			"spec": map[string]any{"purpose": "unread"},
			"metadata": map[string]any{"name": fmt.Sprintf("unread-%d", i),
				"annotations": map[string]any{"a": strings.Repeat("x", 200<<10)}},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	idler, err := shared.Config("idler")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(idler.CertFile, idler.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	queries := []string{"", "?watch=1", "?limit=90"}
	for _, query := range queries {
		conn := mustDial(t, func(c *tls.Config) { c.Certificates = []tls.Certificate{pair} })
		if _, err := fmt.Fprintf(conn, "GET /apis/%s/gadgets%s HTTP/1.1\r\nHost: x\r\n\r\n", gadgets.GroupVersion(),
			query); err != nil {
			t.Fatal(err)
		}
	}
	seats := func(done func(float64) bool) func(context.Context) error {
		return func(ctx context.Context) error {
			if taken := seatsOf(t); !done(taken) {
				return fmt.Errorf("%v seats are taken", taken)
			}
			return nil
		}
	}
	shared.Eventually(t, "the requests to be served", envtest.WaitTimeout,
		seats(func(taken float64) bool { return taken >= float64(len(queries)) }))
	// The server aborts a response that it cannot send within 60 s, the request timeout.
	shared.Eventually(t, "the seats to be released", 3*envtest.WaitTimeout,
		seats(func(taken float64) bool { return taken == 0 }))
}

// TestUnreadResponses checks that another user is served while a user with read permission requests
// much from several addresses, and reads none of it.
func TestUnreadResponses(t *testing.T) {
	costlyUsers(t)
	idler, err := shared.Config("costly-reader")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(idler.CertFile, idler.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	lasts, err := time.ParseDuration(attackFor())
	if err != nil {
		t.Fatal(err)
	}
	for name, head := range map[string]string{
		"lists": "GET " + largeObjects + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"lists as Tables": "GET " + largeObjects + "?includeObject=Object HTTP/1.1\r\nHost: x\r\nAccept: " + jsonType +
			table + "\r\n\r\n",
		"gets": "GET " + escapedObjects + "/w1?includeObject=Object HTTP/1.1\r\nHost: x\r\nAccept: " +
			jsonType + table + "\r\n\r\n",
		"watches": "GET " + largeObjects + "?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			if err := shared.Servers[0].ResetVmHWM(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), lasts)
			defer cancel()
			done := make(chan string)
			var all sync.WaitGroup
			for i := range 160 { // of the maximum of 200 connections
				all.Go(func() {
					for ctx.Err() == nil {
						if err := leaveUnread(ctx, i, pair, head); err != nil && ctx.Err() == nil {
							t.Logf("connection %d: %v", i, err)
						}
					}
				})
			}
			go func() { all.Wait(); close(done) }()
			survived(t, done, func() string { return "unread" })
		})
	}
}

// TestCancelled checks that another user is served while an unprivileged user sends requests and
// cancels them at once. Each of them needs its own SubjectAccessReview.
func TestCancelled(t *testing.T) {
	mallory := clientOf(t, shared.User(t, "mallory"))
	allow(t, shared.Client(t), "quiet", rbacv1.PolicyRule{APIGroups: []string{gadgets.Group},
		Resources: []string{"widgets"}, Verbs: []string{"list"}}, listsConfigMaps)
	lasts, err := time.ParseDuration(attackFor())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	done := make(chan string)
	var all sync.WaitGroup
	var sent atomic.Int64
	for range 40 {
		all.Go(func() {
			for ctx.Err() == nil {
				n := sent.Add(1)
				path := fmt.Sprintf("/apis/%s/namespaces/small/widgets/none-%d", gadgets.GroupVersion(), n)
				// Cancelled, or 403.
				_, _, _ = mallory.send(ctx, request{method: http.MethodGet, path: path,
					timeout: time.Duration(1+n%20) * time.Millisecond})
			}
		})
	}
	go func() { all.Wait(); close(done) }()
	others := othersDuring(t, target{shared.Servers[0], gadgets.GroupVersion(), "widgets"}, done)
	t.Logf("%d cancelled; %s", sent.Load(), others)
	if others.failed > 0 {
		t.Errorf("%d lists of another user, or probes, failed; want none", others.failed)
	}
	checkLatency(t, "", others)
}

// leaveUnread sends the head of a request from one of four addresses, and does not read for 5 s.
func leaveUnread(ctx context.Context, i int, pair tls.Certificate, head string) error {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("127.0.0.%d", 2+i%4))}}
	conn, err := dialTLSFrom(ctx, dialer, func(c *tls.Config) { c.Certificates = []tls.Certificate{pair} })
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, head); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
	}
	return nil
}

// TestS37SlowBody sends bodies at one byte per second. The server rejects unauthenticated clients
// at once; a user who may send a body has until the request timeout.
func TestS37SlowBody(t *testing.T) {
	t.Parallel()
	admin, err := shared.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	allow(t, kubernetes.NewForConfigOrDie(admin), "slow",
		rbacv1.PolicyRule{APIGroups: []string{gadgets.Group}, Resources: []string{gadgets.Resource},
			Verbs: []string{"create"}})
	slow, err := shared.Config("slow")
	if err != nil {
		t.Fatal(err)
	}
	client := dynamic.NewForConfigOrDie(slow).Resource(gadgets)
	shared.Eventually(t, "the user to be allowed", envtest.WaitTimeout, func(ctx context.Context) error {
		_, err := client.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gadgets.GroupVersion().String(), "kind": "Gadget", "spec": map[string]any{"purpose": "none"},
			"metadata": map[string]any{"name": "slow"},
		}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	pair, err := tls.LoadX509KeyPair(slow.CertFile, slow.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	// While connections of earlier tests take all slots, the server refuses a connection in the
	// handshake, which the client notices later.
	shared.Eventually(t, "connections to be accepted", envtest.WaitTimeout, func(context.Context) error {
		for range 6 {
			conn := mustDial(t, func(c *tls.Config) { c.Certificates = []tls.Certificate{pair} })
			defer conn.Close()
			if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				return err
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				return err
			}
			_ = resp.Body.Close()
		}
		return nil
	})
	// All at once, and not as parallel subtests, of which only as many as cores run at a time.
	type sent struct {
		name        string
		known       bool
		least, most time.Duration
		ended       <-chan slowEnd
	}
	var all []sent
	for protocol, send := range map[string]func(*testing.T, *tls.Certificate,
		string) <-chan slowEnd{"HTTP/1.1": sendSlowly, "HTTP/2": sendSlowlyHTTP2} {
		all = append(all,
			sent{"anonymous, " + protocol, false, 0, 5 * time.Second, send(t, nil, "")},
			sent{"made-up token, " + protocol, false, 0, 5 * time.Second, send(t, nil, "made-up")},
			sent{"a user, " + protocol, true, 50 * time.Second, 75 * time.Second, send(t, &pair, "")})
	}
	for _, s := range all {
		got := <-s.ended
		t.Logf("%s: %s after %s", s.name, got.status, got.took.Round(time.Millisecond))
		if !s.known && got.status != "401, closed" || strings.HasPrefix(got.status, "2") {
			t.Errorf("%s: got %s, want 401 and a closed connection, or an error for a user", s.name, got.status)
		}
		if got.took < s.least || got.took > s.most {
			t.Errorf("%s: ended after %s, want %s to %s", s.name, got.took, s.least, s.most)
		}
	}
	shared.Eventually(t, "the seats to be released", 3*envtest.WaitTimeout, func(ctx context.Context) error {
		if taken := seatsOf(t); taken > 0 {
			return fmt.Errorf("%v seats are taken", taken)
		}
		return nil
	})
}

// slowEnd is how a request with a slow body ended, and after how long.
type slowEnd struct {
	status string
	took   time.Duration
}

const slowBody = 200_000

// eachSecond calls write each second until it fails, or the test ends.
func eachSecond(t *testing.T, write func() error) {
	tick := time.NewTicker(time.Second)
	go func() {
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-t.Context().Done():
				return
			}
			if write() != nil {
				return
			}
		}
	}()
}

// sendSlowly starts to send a request, and returns a channel with its result.
func sendSlowly(t *testing.T, cert *tls.Certificate, token string) <-chan slowEnd {
	t.Helper()
	conn := mustDial(t, func(c *tls.Config) {
		if cert != nil {
			c.Certificates = []tls.Certificate{*cert}
		}
	})
	if err := conn.SetReadDeadline(time.Now().Add(2 * envtest.WaitTimeout)); err != nil {
		t.Fatal(err)
	}
	authorization := ""
	if token != "" {
		authorization = "Authorization: Bearer " + token + "\r\n"
	}
	began := time.Now()
	if _, err := fmt.Fprintf(conn,
		"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n", gadgetsPath,
		slowBody, authorization); err != nil {
		t.Fatal(err)
	}
	eachSecond(t, func() error { _, err := io.WriteString(conn, " "); return err })
	ended := make(chan slowEnd, 1)
	go func() {
		status, in := "no response", bufio.NewReader(conn)
		if resp, err := http.ReadResponse(in, nil); err == nil {
			_ = resp.Body.Close()
			status = fmt.Sprint(resp.StatusCode)
		}
		if _, err := io.Copy(io.Discard, in); !errors.Is(err, os.ErrDeadlineExceeded) {
			status += ", closed"
		}
		ended <- slowEnd{status, time.Since(began)}
	}()
	return ended
}

// sendSlowlyHTTP2 is sendSlowly over HTTP/2, where a user's connection stays open.
func sendSlowlyHTTP2(t *testing.T, cert *tls.Certificate, token string) <-chan slowEnd {
	t.Helper()
	conn := &watchedConn{Conn: mustDial(t, func(c *tls.Config) {
		c.NextProtos = []string{"h2"}
		if cert != nil {
			c.Certificates = []tls.Certificate{*cert}
		}
	}), ended: make(chan struct{})}
	client, err := new(http2.Transport).NewClientConn(conn)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*envtest.WaitTimeout)
	t.Cleanup(cancel)
	body, in := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, shared.Servers[0].URL+gadgetsPath, body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = slowBody
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	began := time.Now()
	eachSecond(t, func() error { _, err := io.WriteString(in, " "); return err })
	ended := make(chan slowEnd, 1)
	go func() {
		// The end of a stream can come before its response.
		resp, err := client.RoundTrip(req)
		status := fmt.Sprintf("no response (%v)", err)
		if err == nil {
			_ = resp.Body.Close()
			status = fmt.Sprint(resp.StatusCode)
		}
		if cert == nil {
			select {
			case <-conn.ended:
				status += ", closed"
			case <-ctx.Done():
			}
		}
		ended <- slowEnd{status, time.Since(began)}
	}()
	return ended
}

// watchedConn reports when the connection ended.
type watchedConn struct {
	net.Conn
	once  sync.Once
	ended chan struct{}
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.once.Do(func() { close(c.ended) })
	}
	return n, err
}

// seatsOf returns the number of APF seats that the priority level global-default holds.
func seatsOf(t *testing.T) float64 {
	t.Helper()
	sum := 0.0
	for _, sample := range metrics(t)["apiserver_flowcontrol_current_executing_seats"] {
		if sample.Metric["priority_level"] == "global-default" {
			sum += float64(sample.Value)
		}
	}
	return sum
}

// allowReads lets the user read gadgets.
func allowReads(t *testing.T, admin kubernetes.Interface, user string) {
	t.Helper()
	allow(t, admin, user, rbacv1.PolicyRule{APIGroups: []string{gadgets.Group}, Resources: []string{gadgets.Resource},
		Verbs: []string{"get", "list", "watch"}})
}
