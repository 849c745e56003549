// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/testutil"
)

const (
	gadgetsPath = "/apis/workshop.example.com/v1/gadgets"
	// maxStreams is the number of requests on a connection that the server serves at a time.
	maxStreams = 25
	// streamRoutines is the maximum number of goroutines of each of them.
	streamRoutines = 5
)

// TestS36HeaderFloodHTTP2 checks that the server rejects floods of headers over HTTP/2, even from
// the front proxy, whose headers identify users.
func TestS36HeaderFloodHTTP2(t *testing.T) {
	proxy := frontProxy(t)
	check := peaks(t, 64)
	for _, tc := range []struct {
		name   string
		fields []hpack.HeaderField
		want   string
	}{
		{"10", extras(10, "x"), "200"},
		{"100 of 500 bytes", extras(100, strings.Repeat("x", 500)), "200"},
		{"1,000", extras(1000, "x"), "refused"},
		{"10,000", extras(10_000, "x"), "refused"},
		{"10,000 of 100 bytes", extras(10_000, strings.Repeat("x", 100)), "refused"},
		{"one of 2 MiB", extras(1, strings.Repeat("x", 2<<20)), "refused"},
		// HPACK refers to an earlier header with one byte: 40 MB in 10 kB.
		{"one of 4,000 bytes 10,000 times", slices.Repeat(
			[]hpack.HeaderField{{Name: "x-remote-extra-a", Value: strings.Repeat("x", 4000)}}, 10_000), "refused"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := dialHTTP2(t, proxy)
			c.get(t, 1, "/healthz", tc.fields...)
			got := c.await(1)
			if got == "431" || strings.HasPrefix(got, "closed") {
				got = "refused"
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	healthy(t)
	check()
}

// TestS36ContinuationFlood checks that the server soon stops to read a head that does not end
// (CVE-2023-45288).
func TestS36ContinuationFlood(t *testing.T) {
	check := peaks(t, 64)
	for name, cert := range map[string]*tls.Certificate{"anonymous": nil, "front proxy": frontProxy(t)} {
		for _, tc := range []struct {
			name  string
			frame func(c *frames, i int) []byte
			count int
			ended bool // before all are sent
		}{
			{"frames with headers", func(c *frames, i int) []byte {
				return c.request(t, "/healthz", hpack.HeaderField{Name: fmt.Sprintf("x-%d", i),
					Value: strings.Repeat("x", 15<<10), Sensitive: true})
			}, 10_000, true},
			{"frames of one header", func(_ *frames, i int) []byte {
				if i == 0 {
					// A header that is never indexed, with a name of 1 byte and a value of
					// 264,241,279 bytes (RFC 7541 section 5.1).
					return []byte{0x10, 0x01, 'x', 0x7f, 0x80, 0x80, 0xff, 0x7d}
				}
				return bytes.Repeat([]byte("x"), 16<<10)
			}, 10_000, true},
			{"empty frames", func(*frames, int) []byte { return nil }, 10_000, false},
		} {
			t.Run(tc.name+"/"+name, func(t *testing.T) {
				c := dialHTTP2(t, cert)
				_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.request(t, "/healthz"),
					EndStream: true})
				sent := 0
				for ; sent < tc.count; sent++ {
					if err := c.framer.WriteContinuation(1, false, tc.frame(c, sent)); err != nil {
						break
					}
				}
				t.Logf("%d of %d frames were sent", sent, tc.count)
				if tc.ended && sent == tc.count {
					t.Errorf("the server took all of %d frames of 16 KiB, want the connection closed after some", sent)
				}
				_ = c.framer.WriteContinuation(1, true, nil)
				_ = c.out.Flush()
				// A head with many empty frames is valid.
				if got := c.await(1); tc.ended && got != "431" && !strings.HasPrefix(got, "closed") {
					t.Errorf("got %s, want 431 or a closed connection", got)
				}
			})
		}
	}
	healthy(t)
	check()
}

// TestS38AnonymousHTTP2 checks that an unauthenticated client gets one response on a connection,
// which is then closed. HTTP/2 lets a client cause much work with little effort, so it is for
// authenticated clients (UnauthenticatedHTTP2DOSMitigation).
func TestS38AnonymousHTTP2(t *testing.T) {
	for _, tc := range []struct{ path, want string }{{gadgetsPath, "401"}, {"/nowhere", "401"}, {"/healthz", "200"}} {
		c := dialHTTP2(t, nil)
		c.get(t, 1, tc.path)
		if got := c.await(1); got != tc.want {
			t.Errorf("GET %s: got %s, want %s", tc.path, got, tc.want)
		}
		c.get(t, 3, tc.path)
		if got := c.await(3); got != "closed" {
			t.Errorf("GET %s again on the connection: got %s, want it closed", tc.path, got)
		}
	}
	c := dialHTTP2(t, frontProxy(t))
	for stream := uint32(1); stream < 20; stream += 2 {
		c.get(t, stream, "/healthz", extras(0, "")...)
		if got := c.await(stream); got != "200" {
			t.Fatalf("stream %d with credentials: got %s, want 200", stream, got)
		}
	}
}

// TestS38RapidReset checks the cost of requests that are reset as soon as they are sent
// (CVE-2023-44487). The connection of an unauthenticated client is closed. The requests of a user
// cost no more than the server does at once, 25 on a connection and 100 that wait: it closes the
// connection, or has ended every request when it responds to the last. It serves other users
// meanwhile.
func TestS38RapidReset(t *testing.T) {
	admin, err := shared.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	allowReads(t, kubernetes.NewForConfigOrDie(admin), "resetter")
	config, err := shared.Config("resetter")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(config.CertFile, config.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	if got := streamsAtOnce(t); got != maxStreams {
		t.Errorf("SETTINGS_MAX_CONCURRENT_STREAMS of the server: %d, want %d", got, maxStreams)
	}
	const count = 10_000
	for _, tc := range []struct {
		name, path, wantStatus string
		cert                   *tls.Certificate
		closed                 bool
	}{
		{"anonymous", gadgetsPath, "401", nil, true},
		{"anonymous, health", "/healthz", "200", nil, true},
		// The front proxy's connection carries the requests of all users: it must not be closed
		// because one user resets many.
		{"a user, lists", gadgetsPath, "200", &pair, false},
		{"a user, watches", gadgetsPath + "?watch=1", "200", &pair, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// The same request succeeds when it is not reset. The user's permission takes a
			// moment.
			shared.Eventually(t, "the response to the request", envtest.WaitTimeout, func(context.Context) error {
				control := dialHTTP2(t, tc.cert)
				control.get(t, 1, tc.path)
				if got := control.await(1); got != tc.wantStatus {
					return fmt.Errorf("got %s, want %s", got, tc.wantStatus)
				}
				return nil
			})
			check, routines := peaks(t, 128), goroutines(t)
			c := dialHTTP2(t, tc.cert)
			began, most := time.Now(), 0.0
			for stream := uint32(1); stream < 2*count; stream += 2 {
				c.headers(stream, c.request(t, tc.path))
				_ = c.framer.WriteRSTStream(stream, http2.ErrCodeCancel)
				if stream == count+1 {
					_ = c.out.Flush()
					healthy(t)
				}
				if stream%1000 == 1 {
					_ = c.out.Flush()
					most = max(most, goroutines(t))
				}
			}
			c.get(t, 2*count+1, "/healthz")
			got, last := c.last(2*count + 1)
			t.Logf("%s after %s, the last stream that counted was %d; %v goroutines before, %v at most", got,
				time.Since(began).Round(time.Millisecond), last, routines, most)
			if most > routines+maxStreams*streamRoutines {
				t.Errorf("%v goroutines while requests were cancelled, %v before; want at most %d for each of %d "+
					"requests", most, routines, streamRoutines, maxStreams)
			}
			if closed := strings.HasPrefix(got, "closed"); !closed && (tc.closed || got != "200") {
				t.Errorf("the request after them: got %s, want a closed connection, or 200 for a user", got)
			}
			if tc.closed && last > count {
				t.Errorf("anonymous streams up to %d of %d counted, want the connection closed with the first ones",
					last, 2*count)
			}
			healthy(t)
			shared.Eventually(t, "the requests to end", envtest.WaitTimeout, func(ctx context.Context) error {
				if now := goroutines(t); now > routines+200 {
					return fmt.Errorf("%v goroutines, %v before", now, routines)
				}
				return nil
			})
			// 500 requests of about 100 KiB, doubled by garbage collection.
			check()
		})
	}
}

// streamsAtOnce returns the number of concurrent requests that the server allows on a connection.
func streamsAtOnce(t *testing.T) uint32 {
	t.Helper()
	conn := mustDial(t, func(c *tls.Config) { c.NextProtos = []string{"h2"} })
	if err := conn.SetDeadline(time.Now().Add(envtest.WaitTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	frame, err := framer.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	settings, ok := frame.(*http2.SettingsFrame)
	if !ok {
		t.Fatalf("the first frame of the server: %v, want SETTINGS", frame)
	}
	streams, _ := settings.Value(http2.SettingMaxConcurrentStreams)
	return streams
}

// last waits for the response on a stream, or the end of the connection. It returns the last
// stream that the server reports as processed.
func (c *frames) last(stream uint32) (got string, last uint32) {
	got = "closed"
	for h := range c.heard {
		if h.stream == stream {
			return h.status, stream
		}
		if h.goAway != nil {
			last = h.goAway.LastStreamID
			if h.goAway.ErrCode != http2.ErrCodeNo {
				got = "closed: " + h.goAway.ErrCode.String()
			}
		}
	}
	return got, last
}

// metricsClient keeps one connection for all metrics of the first server.
var metricsClient = sync.OnceValues(func() (rest.Interface, error) {
	admin, err := shared.AdminConfig()
	if err != nil {
		return nil, err
	}
	direct := shared.Servers[0].Config(shared)
	direct.CertFile, direct.KeyFile = admin.CertFile, admin.KeyFile
	client, err := kubernetes.NewForConfig(direct)
	if err != nil {
		return nil, err
	}
	return client.RESTClient(), nil
})

// metrics returns the metrics of the first server.
func metrics(t *testing.T) testutil.Metrics {
	t.Helper()
	client, err := metricsClient()
	if err != nil {
		t.Fatal(err)
	}
	samples := testutil.NewMetrics()
	shared.Eventually(t, "metrics", envtest.WaitTimeout, func(ctx context.Context) error {
		data, err := client.Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return err
		}
		return testutil.ParseMetrics(string(data), &samples)
	})
	return samples
}

// goroutines returns the number of goroutines of the first server.
func goroutines(t *testing.T) float64 {
	t.Helper()
	samples := metrics(t)["go_goroutines"]
	if len(samples) != 1 {
		t.Fatalf("metric go_goroutines: got %v, want one sample", samples)
	}
	return float64(samples[0].Value)
}
