// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
)

// streamSocket serves streams on a Unix socket. The client can close its side alone, and the
// socket needs no port.
func streamSocket(f *testing.F) func(*testing.T) *net.UnixConn {
	f.Helper()
	r := newStream(&oneGadget{}, allowing())
	f.Cleanup(r.Destroy)
	address := &net.UnixAddr{Net: "unix", Name: filepath.Join(f.TempDir(), "s")}
	listener, err := net.ListenUnix("unix", address)
	if err != nil {
		f.Fatal(err)
	}
	ended := make(chan struct{}, 1)
	server := &http.Server{Handler: connectHandler(f.Context(), r, ended), ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(listener) }()
	f.Cleanup(func() { _ = server.Close() })
	return func(t *testing.T) *net.UnixConn {
		t.Helper()
		conn, err := net.DialUnix("unix", nil, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = conn.Close()
			await(t, "end of the handler", ended)
		})
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, handshake); err != nil {
			t.Fatal(err)
		}
		return conn
	}
}

// told contains the data that the server sent, by channel, until it closed the connection.
type told struct {
	text   [remotecommand.StreamErr + 1]string
	status *metav1.Status
}

// hearAll reads until the server closes the connection. It fails the test if a frame violates the
// protocol.
func hearAll(t *testing.T, conn net.Conn) told {
	t.Helper()
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatalf("response to the handshake: %v", err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %s (%v), want the protocol switched", resp.Status, err)
	}
	var got told
	for {
		head := make([]byte, 2)
		if _, err := io.ReadFull(reader, head); gone(err) {
			return got
		} else if err != nil {
			t.Fatalf("read: %v, want a frame or the end", err)
		}
		length := uint64(head[1])
		if extended := map[uint64]int{126: 2, 127: 8}[length]; extended > 0 {
			bytes := make([]byte, 8)
			if _, err := io.ReadFull(reader, bytes[8-extended:]); gone(err) {
				return got
			} else if err != nil {
				t.Fatal(err)
			}
			length = binary.BigEndian.Uint64(bytes)
		}
		if length > 1<<20 {
			t.Fatalf("got a frame of %d bytes, want one for each response", length)
		}
		data := make([]byte, length)
		if _, err := io.ReadFull(reader, data); gone(err) {
			return got
		} else if err != nil {
			t.Fatal(err)
		}
		switch {
		case head[0] == 0x88, head[0] == 0x8a:
			// Close and pong frames (RFC 6455, section 5.5).
		case head[0] != 0x82 || len(data) == 0 || data[0] < remotecommand.StreamStdOut ||
			data[0] > remotecommand.StreamErr || got.status != nil:
			t.Fatalf("got the frame %x %q after the status %v, want one of the channels 1 to 3, the status at last",
				head[0], data, got.status)
		default:
			got.text[data[0]] += string(data[1:])
			if data[0] == remotecommand.StreamErr {
				got.status = &metav1.Status{}
				if err := json.Unmarshal(data[1:], got.status); err != nil {
					t.Fatalf("status %q: %v", data[1:], err)
				}
			}
		}
	}
}

// gone reports whether an error is the end of a connection. Unread input of the client causes a
// reset. A client that disconnects may receive the beginning of a frame.
func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// masked returns a frame in the form that a client sends, masked with zeros.
func masked(head byte, payload string) []byte {
	frame := binary.BigEndian.AppendUint16([]byte{head, 0x80 | 126}, uint16(len(payload))) //nolint:gosec // short enough in each call
	return append(append(frame, 0, 0, 0, 0), payload...)
}

// said is the expected output of a session: the model that the stream is compared with.
type said struct {
	out, errOut string
	// ended is true if the session ends before its input. tooLong is true if a line is too long.
	ended, tooLong bool
}

func responses(input string) said {
	var s said
	for line := range strings.Lines(input) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) > maxLine {
			s.ended, s.tooLong = true, true
			return s
		}
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "exit":
			s.ended = true
			return s
		case words[0] == "echo":
			s.out += strings.Join(words[1:], " ") + "\n"
		case words[0] == "show":
			s.out += "gadget g\n"
		default:
			s.errOut += fmt.Sprintf("unknown command %q\n", words[0])
		}
	}
	return s
}

// FuzzStreamFrames sends frames of the channel protocol and then the end of the input. In the
// script, "|" separates frames and ";" is the end of a line. The first byte of a frame is its
// channel, or says that a channel ends. A stream responds only to its input channel and ends with
// a Status, which is 400 if a line is too long or the protocol is violated. A line that a
// protocol error cuts off gets no response.
func FuzzStreamFrames(f *testing.F) {
	dial := streamSocket(f)
	for _, script := range []string{
		"", "\x00echo a;|\x00show;|\x00help;|\x00dance", "\x00ec|\x00ho a;|\x00|\x01b;|\x04{}|\x05x;|\x80x;|\x00c;",
		"\x00exit;|\x00echo b;|\xff\x01",
		"\x00echo a;|\xff\x00|\x00echo b;|\xff\x00", "\xff\x03|\xff\x04|\xff\x01|\x00echo a;",
		"\x00echo a;|\xff\x05|\x00echo b;", "\xff", "\xff\x00\x00", "|\x00;",
		"\x00echo a;|\x00" + strings.Repeat("x", maxLine) + "|\x00;|\x00echo b", "\x00echo a;" +
			strings.Repeat("x", maxLine+1) + "|\x00;echo b;",
	} {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script string) {
		var frames []byte
		var input string
		closed, broken := false, false
		for payload := range strings.SplitSeq(script, "|") {
			if len(payload) > 1<<15 || len(frames) > 1<<16 {
				return
			}
			payload = strings.ReplaceAll(payload, ";", "\n")
			frames = append(frames, masked(0x82, payload)...)
			switch {
			case payload == "":
			case payload[0] == 0xff && (len(payload) != 2 || payload[1] > 4):
				broken = true
			case payload == "\xff\x00":
				closed = true
			case payload[0] == remotecommand.StreamStdIn && !closed && !broken:
				input += payload[1:]
			}
		}
		conn := dial(t)
		go func() {
			_, _ = conn.Write(append(frames, masked(0x82, "\xff\x00")...))
			// A stream that has ended waits for the client to close the connection.
			_ = conn.CloseWrite()
		}()
		got, want := hearAll(t, conn), responses(input)
		if broken && !want.tooLong {
			want = responses(input[:strings.LastIndex(input, "\n")+1])
		}
		refused := want.tooLong || broken && !want.ended
		if got.text[remotecommand.StreamStdOut] != want.out || got.text[remotecommand.StreamStdErr] != want.errOut {
			t.Errorf("%q: got output %q and error output %q, want %q and %q", script,
				got.text[remotecommand.StreamStdOut], got.text[remotecommand.StreamStdErr], want.out, want.errOut)
		}
		if got.status == nil || (got.status.Reason == metav1.StatusReasonBadRequest) != refused ||
			(got.status.Status == metav1.StatusSuccess) == refused {
			t.Errorf("%q: got %+v, want BadRequest: %t, success otherwise", script, got.status, refused)
		}
	})
}

// FuzzStreamBytes: any bytes after the handshake, followed by the end of the connection, end the
// stream. The memory that the server allocates is limited by the bytes that it received, not by
// the length that a frame announces.
func FuzzStreamBytes(f *testing.F) {
	dial := streamSocket(f)
	for _, data := range [][]byte{
		nil, masked(0x82, "\x00echo a\n"), masked(0x81, "\x00echo a\n"), masked(0x89, "ping"), masked(0x8a, "pong"),
		masked(0x88, "\x03\xe8bye"), masked(0x83, "reserved"),
		append(masked(0x02, "\x00echo"), masked(0x80, " a\n")...), masked(0x80, "continues nothing"),
		{0x82, 5, remotecommand.StreamStdIn, 'e', 'x', 'i', 't'},
		{0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0},
		{0x82, 0xff, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 'x'},
		{0x89, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 'x'}, {0x82}, {0xff, 0xff},
		[]byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		var before, after runtime.MemStats
		conn := dial(t)
		runtime.ReadMemStats(&before)
		go func() {
			_, _ = conn.Write(data)
			_ = conn.CloseWrite()
		}()
		hearAll(t, conn)
		runtime.ReadMemStats(&after)
		// The server can write a response to as few as two bytes.
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+4096*len(data)); got > most {
			t.Errorf("got %d bytes of memory for %d bytes of input, want at most %d", got, len(data), most)
		}
	})
}
