// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/sample/apis/workshop"
)

// destroyed calls Destroy and closes the channel when it returns.
func destroyed(r *streamREST) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		r.Destroy()
		close(done)
	}()
	return done
}

// TestStreamDestroy: a server that stops sends its Status to every open stream and opens no more.
func TestStreamDestroy(t *testing.T) {
	gadgets := &oneGadget{}
	r := newStream(gadgets, allowing())
	url, ended := serveStreams(t, r)
	streams := []*streamClient{openStream(t.Context(), t, url), openStream(t.Context(), t, url)}
	for _, c := range streams {
		c.say(t, "echo tick")
		c.hear(t, c.out, "tick")
	}
	raw := dialWire(t, r)
	if err := raw.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	done := destroyed(r)
	if got := raw.hearStatus(t); got.Reason != metav1.StatusReasonServiceUnavailable ||
		got.Code != http.StatusServiceUnavailable {
		t.Errorf("got the status %v, want 503 ServiceUnavailable", got)
	}
	// The next frame, which closes the connection, would wait for a reader.
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range streams {
		if err := c.end(t); err == nil || err.Error() != "the server is shutting down" {
			t.Errorf("got %v, want that the server is shutting down", err)
		}
		await(t, "the end of the session", ended)
	}
	await(t, "the end of Destroy", done)

	reads := gadgets.reads.Load()
	if err := openStream(t.Context(), t, url).end(t); err == nil ||
		!strings.Contains(err.Error(), "the server is shutting down") {
		t.Errorf("stream after Destroy: got %v, want that the server is shutting down", err)
	}
	if _, err := r.Connect(streamContext(t.Context(), "g"), "g", nil, nil); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("connect after Destroy: got %v, want ServiceUnavailable", err)
	}
	if got := gadgets.reads.Load(); got != reads {
		t.Errorf("gadget read %d times after Destroy, want it left alone: the store is destroyed too", got-reads)
	}
}

// TestStreamDestroyBetween: a request that was checked before Destroy and is upgraded after it
// opens no stream.
func TestStreamDestroyBetween(t *testing.T) {
	r := newStream(&oneGadget{}, allowing())
	recorder := httptest.NewRecorder()
	handler, err := r.Connect(streamContext(t.Context(), "g"), "g", nil, refusal{recorder})
	if err != nil {
		t.Fatal(err)
	}
	r.Destroy()
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(handshake)))
	if err != nil {
		t.Fatal(err)
	}
	handler.ServeHTTP(recorder, req)
	if recorder.Code != http.StatusServiceUnavailable ||
		!strings.Contains(recorder.Body.String(), "the server is shutting down") {
		t.Errorf("got %d %s, want 503, for the server is shutting down", recorder.Code, recorder.Body)
	}
}

// TestStreamDestroyUnread: a client that does not read cannot prevent Destroy from returning,
// even while the server writes to it.
func TestStreamDestroyUnread(t *testing.T) {
	for name, responds := range map[string]bool{"silent": false, "in the middle of a response": true} {
		t.Run(name, func(t *testing.T) {
			r := newStream(&oneGadget{}, allowing())
			r.closeTimeout = 10 * time.Millisecond
			w := dialWire(t, r)
			if responds {
				w.sayTick(t)
			}
			await(t, "the end of Destroy", destroyed(r))
		})
	}
}

// TestStreamDestroyWaits: Destroy returns only after its streams have ended, because it would
// otherwise cut off their last message. The fake clock of synctest shows exactly how long it
// waits for a client that does not read.
func TestStreamDestroyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStream(&oneGadget{}, allowing())
		dialWire(t, r)
		began, done := time.Now(), destroyed(r)
		synctest.Wait()
		select {
		case <-done:
			t.Error("Destroy is through while a stream is open")
		default:
		}
		<-done
		if got := time.Since(began); got != streamCloseTimeout {
			t.Errorf("Destroy took %s, want %s", got, streamCloseTimeout)
		}
	})
}

// TestStreamDestroyHanging: Destroy cancels a command that waits for the store.
func TestStreamDestroyHanging(t *testing.T) {
	reading, released := make(chan struct{}), make(chan struct{})
	r := newStream(&oneGadget{show: func(ctx context.Context) error {
		close(reading)
		<-ctx.Done()
		close(released)
		return ctx.Err()
	}}, allowing())
	url, _ := serveStreams(t, r)
	c := openStream(t.Context(), t, url)
	c.say(t, "show")
	await(t, "the command's question to the store", reading)
	await(t, "the end of Destroy", destroyed(r))
	if err := c.end(t); err == nil || err.Error() != "the server is shutting down" {
		t.Errorf("got %v, want that the server is shutting down", err)
	}
	await(t, "the end of the command's question", released)
}

// TestStreamContextEnds: the session ends with the context of Connect, and the client receives
// its cause if it is a Status. Input that was sent before is no longer processed.
func TestStreamContextEnds(t *testing.T) {
	forbidden := apierrors.NewForbidden(workshop.Resource("gadgets"), "g", errors.New("the permission was removed"))
	for _, tc := range []struct {
		name  string
		cause error
		want  metav1.Status
	}{
		{"a Status", forbidden, forbidden.ErrStatus},
		{"a Status, wrapped", fmt.Errorf("session of jane: %w", forbidden), forbidden.ErrStatus},
		{"no cause", nil, errEnded.ErrStatus},
		{"any other error", errors.New("lease 7 expired"), errEnded.ErrStatus},
	} {
		for when, lines := range map[string]string{"silent": "", "in the middle of a command": "show\necho after\n"} {
			t.Run(tc.name+", "+when, func(t *testing.T) {
				ctx, end := context.WithCancelCause(t.Context())
				defer end(nil)
				w := dialWireWithin(ctx, t, newStream(&oneGadget{show: func(ctx context.Context) error {
					end(tc.cause)
					<-ctx.Done()
					return nil
				}}, allowing()))
				w.sayTick(t)
				w.hearOut(t, "tick\n")
				if lines == "" {
					end(tc.cause)
				} else {
					w.send(t, masked(0x82, "\x00"+lines))
					w.hearOut(t, "gadget g\n")
				}
				if diff := cmp.Diff(tc.want, w.hearStatus(t)); diff != "" {
					t.Errorf("status (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestStreamContextEndsUnread: the session ends after streamCloseTimeout if the client does not
// read.
func TestStreamContextEndsUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		r := newStream(&oneGadget{}, allowing())
		w := dialWireWithin(ctx, t, r)
		w.sayTick(t)
		synctest.Wait() // the response is being written
		began := time.Now()
		end()
		r.sessions.Wait()
		if got := time.Since(began); got != streamCloseTimeout {
			t.Errorf("the session took %s to end, want %s", got, streamCloseTimeout)
		}
	})
}

// TestStreamClosing: after the Status, the server reads until the client closes the connection,
// because closing it earlier would reset it. It waits no longer than streamCloseTimeout.
func TestStreamClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStream(&oneGadget{}, allowing())
		w := dialWire(t, r)
		w.send(t, masked(0x82, "\x00exit\n"))
		if got := w.hearStatus(t); got.Status != metav1.StatusSuccess {
			t.Errorf("got the status %v, want success", got)
		}
		if code, _ := w.hear(t); code != 1000>>8 {
			t.Errorf("got a frame that begins with %d, want one that closes", code)
		}
		began := time.Now()
		w.send(t, masked(0x82, "\x00"+strings.Repeat("more\n", 1000)))
		if _, err := w.reader.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want the end of the connection", err)
		}
		if got := time.Since(began); got != streamCloseTimeout {
			t.Errorf("the connection was closed after %s, want %s", got, streamCloseTimeout)
		}
	})
}

// TestStreamIdle: a stream with input stays open, and a stream without input ends, so that unused
// streams do not accumulate. The clock is the fake clock of synctest.
func TestStreamIdle(t *testing.T) {
	for name, lines := range map[string]int{"never used": 0, "used": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newStream(&oneGadget{}, allowing())
				w := dialWire(t, r)
				for range lines {
					<-time.After(streamIdleTimeout - time.Second)
					w.sayTick(t)
					w.hearOut(t, "tick\n")
				}
				began := time.Now()
				if got := w.hearStatus(t); got.Reason != metav1.StatusReasonTimeout ||
					!strings.Contains(got.Message, "no input for 4h0m0s") {
					t.Errorf("got the status %v, want Timeout, for there was no input for 4h0m0s", got)
				}
				if got := time.Since(began); got != streamIdleTimeout {
					t.Errorf("the client was idle for %s, want %s", got, streamIdleTimeout)
				}
				r.Destroy()
			})
		})
	}
}
