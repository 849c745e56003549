// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// announced returns the header of a frame that is masked with zeros (RFC 6455, section 5.2),
// without its payload.
func announced(head byte, length uint64) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{head, 0xff}, length), 0, 0, 0, 0)
}

// allocated calls f and returns how many bytes of memory the process allocated meanwhile.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestStreamMessageTooLong: a message that is too long ends the session as soon as its header
// announces the length.
func TestStreamMessageTooLong(t *testing.T) {
	for _, tc := range []struct {
		head   byte
		length uint64
	}{{0x82, maxStreamMessage + 1}, {0x81, maxStreamMessage + 1}, {0x82, 16 << 20}, {0x82, 32 << 20}, {0x82, 1<<63 - 1},
		{0x02, 16 << 20}, {0x80, 16 << 20}} {
		t.Run(fmt.Sprintf("%x %d", tc.head, tc.length), func(t *testing.T) {
			w := dialWire(t, newStream(&oneGadget{}, allowing()))
			if err := w.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			w.sayTick(t)
			w.hearOut(t, "tick\n")
			var got metav1.Status
			if size := allocated(func() {
				w.send(t, announced(tc.head, tc.length))
				got = w.hearStatus(t)
			}); size > 1<<20 {
				t.Errorf("%d bytes of memory were allocated for a message that was only announced, want less than 1 MiB", size)
			}
			if got.Code != http.StatusRequestEntityTooLarge ||
				!strings.Contains(got.Message, "a message is longer than 32769 bytes") {
				t.Errorf("got the status %+v, want 413 with the limit", got)
			}
		})
	}
}

// TestStreamFragments: fragments are not assembled. Each fragment has its own channel and limit,
// and the limit of a line spans fragments.
func TestStreamFragments(t *testing.T) {
	w := dialWire(t, newStream(&oneGadget{}, allowing()))
	if err := w.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	w.send(t, masked(0x02, "\x00echo a\n"))
	w.hearOut(t, "a\n")
	for range 3 {
		w.send(t, masked(0x00, "\x00echo b\n"))
		w.hearOut(t, "b\n")
	}
	for range 2 {
		w.send(t, masked(0x00, "\x00"+strings.Repeat("x", maxLine-1)))
	}
	if got := w.hearStatus(t); got.Reason != metav1.StatusReasonBadRequest ||
		!strings.Contains(got.Message, "a line is longer than 4096 bytes") {
		t.Errorf("got the status %+v, want 400 with the limit of a line", got)
	}
}

// TestStreamInputEnded: after the input has ended, further reads return the same error and no
// data, even if the client sends more.
func TestStreamInputEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		frame []byte
		check func(error) bool
	}{
		"by the client": {masked(0x82, "\xff\x00"), func(err error) bool { return errors.Is(err, io.EOF) }},
		"protocol":      {masked(0x82, "\xff\x09"), apierrors.IsBadRequest},
		"too long": {append(announced(0x82, maxStreamMessage+1), make([]byte, maxStreamMessage+1)...),
			apierrors.IsRequestEntityTooLargeError},
	} {
		t.Run(name, func(t *testing.T) {
			type read struct {
				n   int
				err error
			}
			reads := make(chan read, 2)
			w := dialWire(t, NewStream(&oneGadget{}, allowing(), "console",
				func(_ context.Context, _ string, in io.Reader, _, _ io.Writer) error {
					for range cap(reads) {
						n, err := in.Read(make([]byte, 10))
						reads <- read{n, err}
					}
					return nil
				}).(*streamREST))
			if err := w.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = w.Write(append(tc.frame, masked(0x82, "\x00more\n")...)) }()
			if got := w.hearStatus(t); got.Status != metav1.StatusSuccess {
				t.Errorf("got the status %+v, want success: the session said so", got)
			}
			for i := range cap(reads) {
				if got := <-reads; got.n != 0 || !tc.check(got.err) {
					t.Errorf("read %d: got %d bytes and the error %v, want none and how the input ended", i+1,
						got.n, got.err)
				}
			}
		})
	}
}

// TestStreamPing: the server stores and returns at most 125 bytes of a ping, the limit of RFC
// 6455, section 5.5.
func TestStreamPing(t *testing.T) {
	w := dialWire(t, newStream(&oneGadget{}, allowing()))
	if err := w.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	const length = 1 << 20
	ping := append(announced(0x89, length), make([]byte, length)...)
	if size := allocated(func() {
		if _, err := w.Write(ping); err != nil {
			t.Fatal(err)
		}
		if _, pong := w.hear(t); len(pong) != 125-1 {
			t.Errorf("got %d bytes back, want 125", len(pong)+1)
		}
		w.sayTick(t)
		w.hearOut(t, "tick\n")
	}); size > length/2 {
		t.Errorf("%d bytes of memory were allocated for a ping of %d bytes, want less than half", size, length)
	}
}

// TestStreamScript: a session responds to every line of a file that client-go sends in messages
// of its buffer size.
func TestStreamScript(t *testing.T) {
	url, ended := serveStreams(t, newStream(&oneGadget{}, allowing()))
	c := openStream(t.Context(), t, url)
	const lines = 20_000
	go func() {
		_, _ = c.in.Write([]byte(strings.Repeat("echo tick\n", lines)))
		_ = c.in.Close()
	}()
	for range lines {
		c.hear(t, c.out, "tick")
	}
	if err := c.end(t); err != nil {
		t.Errorf("got %v, want success", err)
	}
	await(t, "the end of the session", ended)
}
