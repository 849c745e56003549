// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// destroyed is closed when Destroy is through.
func destroyed(r *consoleREST) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		r.Destroy()
		close(done)
	}()
	return done
}

// TestConsoleDestroy: a server that stops tells every open console so, and opens no more.
func TestConsoleDestroy(t *testing.T) {
	widgets := &oneWidget{}
	r := newConsole(widgets, allowing())
	url, ended := serveConsoles(t, r)
	consoles := []*console{openConsole(t.Context(), t, url), openConsole(t.Context(), t, url)}
	for _, c := range consoles {
		c.say(t, "echo tick")
		c.hear(t, c.out, "tick")
	}
	raw := dialWire(t, r)
	if err := raw.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	done := destroyed(r)
	if got := raw.hearStatus(t); got.Reason != metav1.StatusReasonServiceUnavailable || got.Code != http.StatusServiceUnavailable {
		t.Errorf("got the status %v, want 503 ServiceUnavailable", got)
	}
	// The rest, a frame that says the connection ends, would wait for a reader.
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range consoles {
		if err := c.end(t); err == nil || err.Error() != "the server is shutting down" {
			t.Errorf("got %v, want that the server is shutting down", err)
		}
		await(t, "the end of the session", ended)
	}
	await(t, "the end of Destroy", done)

	reads := widgets.reads.Load()
	if err := openConsole(t.Context(), t, url).end(t); err == nil || !strings.Contains(err.Error(), "the server is shutting down") {
		t.Errorf("console after Destroy: got %v, want that the server is shutting down", err)
	}
	if _, err := r.Connect(consoleContext(t.Context(), "w"), "w", nil, nil); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("connect after Destroy: got %v, want ServiceUnavailable", err)
	}
	if got := widgets.reads.Load(); got != reads {
		t.Errorf("widget read %d times after Destroy, want it left alone: the store is destroyed too", got-reads)
	}
}

// TestConsoleDestroyBetween: a request that was checked before the server stopped, and is upgraded after it, opens no console
// that nobody would end.
func TestConsoleDestroyBetween(t *testing.T) {
	r := newConsole(&oneWidget{}, allowing())
	recorder := httptest.NewRecorder()
	handler, err := r.Connect(consoleContext(t.Context(), "w"), "w", nil, answer{recorder})
	if err != nil {
		t.Fatal(err)
	}
	r.Destroy()
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(handshake)))
	if err != nil {
		t.Fatal(err)
	}
	handler.ServeHTTP(recorder, req)
	if recorder.Code != http.StatusServiceUnavailable || !strings.Contains(recorder.Body.String(), "the server is shutting down") {
		t.Errorf("got %d %s, want 503, for the server is shutting down", recorder.Code, recorder.Body)
	}
}

// TestConsoleDestroyUnread: a client that reads nothing cannot keep the server from stopping, whether the server is about to
// write or stuck in it.
func TestConsoleDestroyUnread(t *testing.T) {
	for name, answers := range map[string]bool{"silent": false, "in the middle of an answer": true} {
		t.Run(name, func(t *testing.T) {
			r := newConsole(&oneWidget{}, allowing())
			r.closeTimeout = 10 * time.Millisecond
			w := dialWire(t, r)
			if answers {
				w.sayTick(t)
			}
			await(t, "the end of Destroy", destroyed(r))
		})
	}
}

// TestConsoleDestroyWaits: the server stops when its consoles have ended, and not before: it would cut off their last word.
// How long it waits for a client that does not read is known to the second, in the time of the bubble.
func TestConsoleDestroyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newConsole(&oneWidget{}, allowing())
		dialWire(t, r)
		began, done := time.Now(), destroyed(r)
		synctest.Wait()
		select {
		case <-done:
			t.Error("Destroy is through while a console is open")
		default:
		}
		<-done
		if got := time.Since(began); got != consoleCloseTimeout {
			t.Errorf("Destroy took %s, want %s", got, consoleCloseTimeout)
		}
	})
}

// TestConsoleDestroyHanging: a command that waits for the store keeps nobody waiting, and does not outlive its console.
func TestConsoleDestroyHanging(t *testing.T) {
	reading, released := make(chan struct{}), make(chan struct{})
	r := newConsole(&oneWidget{then: func(ctx context.Context) error {
		close(reading)
		<-ctx.Done()
		close(released)
		return ctx.Err()
	}}, allowing())
	url, _ := serveConsoles(t, r)
	c := openConsole(t.Context(), t, url)
	c.say(t, "show")
	await(t, "the command's question to the store", reading)
	await(t, "the end of Destroy", destroyed(r))
	if err := c.end(t); err == nil || err.Error() != "the server is shutting down" {
		t.Errorf("got %v, want that the server is shutting down", err)
	}
	await(t, "the end of the command's question", released)
}

// TestConsoleIdle: a console that is used stays open, one that nobody writes to is ended, so that forgotten ones do not add
// up. Time is that of the bubble: nobody waits for hours.
func TestConsoleIdle(t *testing.T) {
	for name, lines := range map[string]int{"never used": 0, "used": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newConsole(&oneWidget{}, allowing())
				w := dialWire(t, r)
				for range lines {
					<-time.After(consoleIdleTimeout - time.Second)
					w.sayTick(t)
					if channel, got := w.hear(t); channel != stdout || got != "tick\n" {
						t.Errorf("got %q on channel %d, want tick on channel %d", got, channel, stdout)
					}
				}
				began := time.Now()
				if got := w.hearStatus(t); got.Reason != metav1.StatusReasonTimeout || !strings.Contains(got.Message, "no input for 4h0m0s") {
					t.Errorf("got the status %v, want Timeout, for there was no input for 4h0m0s", got)
				}
				if got := time.Since(began); got != consoleIdleTimeout {
					t.Errorf("the silence lasted %s, want %s", got, consoleIdleTimeout)
				}
				r.Destroy()
			})
		})
	}
}
