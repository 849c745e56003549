// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"

	"google.golang.org/grpc/test/bufconn"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
)

const handshake = "GET /g HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: " +
	"websocket\r\nSec-WebSocket-Version: 13\r\n" +
	"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"

// wire is the client's side of a stream on a connection that buffers one byte. The server blocks
// in writes until the test reads.
type wire struct {
	net.Conn
	reader *bufio.Reader
}

func dialWire(t *testing.T, r *streamREST) *wire {
	t.Helper()
	return dialWireWithin(t.Context(), t, r)
}

// dialWireWithin opens a stream that ends with the context.
func dialWireWithin(ctx context.Context, t *testing.T, r *streamREST) *wire {
	t.Helper()
	listener := bufconn.Listen(1)
	server := &http.Server{Handler: connectHandler(ctx, r, make(chan struct{}, 1)), ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	conn, err := listener.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, handshake); err != nil {
		t.Fatal(err)
	}
	w := &wire{conn, bufio.NewReader(conn)}
	resp, err := http.ReadResponse(w.reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %s, want the protocol switched", resp.Status)
	}
	return w
}

// send writes frames.
func (w *wire) send(t *testing.T, frames ...[]byte) {
	t.Helper()
	if _, err := w.Write(slices.Concat(frames...)); err != nil {
		t.Fatal(err)
	}
}

func (w *wire) sayTick(t *testing.T) {
	t.Helper()
	w.send(t, masked(0x82, "\x00echo tick\n"))
}

// hearOut reads a frame of the output and compares it.
func (w *wire) hearOut(t *testing.T, want string) {
	t.Helper()
	if channel, got := w.hear(t); channel != remotecommand.StreamStdOut || got != want {
		t.Errorf("got %q on channel %d, want %q on channel %d", got, channel, want, remotecommand.StreamStdOut)
	}
}

// hear reads a frame and returns its channel and its text.
func (w *wire) hear(t *testing.T) (byte, string) {
	t.Helper()
	head := make([]byte, 2)
	if _, err := io.ReadFull(w.reader, head); err != nil {
		t.Fatal(err)
	}
	length := []byte{0, head[1]}
	if head[1] == 126 {
		if _, err := io.ReadFull(w.reader, length); err != nil {
			t.Fatal(err)
		}
	}
	data := make([]byte, binary.BigEndian.Uint16(length))
	if _, err := io.ReadFull(w.reader, data); err != nil {
		t.Fatal(err)
	}
	return data[0], string(data[1:])
}

// hearStatus reads the final frame of the server, which contains the Status.
func (w *wire) hearStatus(t *testing.T) metav1.Status {
	t.Helper()
	channel, text := w.hear(t)
	var got metav1.Status
	if err := json.Unmarshal([]byte(text), &got); err != nil || channel != remotecommand.StreamErr {
		t.Fatalf("got %q on channel %d (%v), want a Status on channel %d", text, channel, err, remotecommand.StreamErr)
	}
	return got
}
