// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

type field = hpack.HeaderField

// head returns the header fields of a well-formed request for an IdentityReview.
func head(more ...field) []field {
	return append([]field{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "localhost"},
		{Name: ":path", Value: whoami},
		{Name: "content-type", Value: "application/json"},
	}, more...)
}

// TestS07SmugglingHTTP2 is TestS07Smuggling for the wire format of HTTP/2, which the aggregator
// uses. There names and values have lengths, so a line break does not end a value; it must be
// rejected (RFC 9113 section 8.2.1). "reset" is a stream or a connection that the server ends
// without a response.
func TestS07SmugglingHTTP2(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	proxy := frontProxy(t)
	user := field{Name: "x-remote-user", Value: "ann"}
	for _, tc := range []struct {
		name   string
		fields []field
		want   string
	}{
		{"as it should be", head(user), "ann"},
		{"twice: the first counts", head(user, field{Name: "x-remote-user", Value: "boss"}), "ann"},
		{"empty, then a name", head(field{Name: "x-remote-user"}, field{Name: "x-remote-user", Value: "boss"}), "401"},
		{"upper case", head(field{Name: "X-Remote-User", Value: "boss"}), "reset"},
		{"underscores", head(field{Name: "x_remote_user", Value: "boss"}), "401"},
		{"as a pseudo-header", append([]field{{Name: ":x-remote-user", Value: "boss"}}, head()...), "reset"},
		{"a pseudo-header after it", append([]field{user}, head()...), "reset"},
		{"two paths", append([]field{{Name: ":path", Value: "/healthz"}}, head(user)...), "reset"},
		{"two methods", append([]field{{Name: ":method", Value: "GET"}}, head(user)...), "reset"},
		{"no path", []field{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, user}, "reset"},
		{"line break in the value", head(field{Name: "x-remote-user", Value: "ann\r\nx-remote-group: system:masters"}),
			"reset"},
		{"LF in the value", head(field{Name: "x-remote-user", Value: "ann\nx-remote-group: system:masters"}), "reset"},
		{"NUL in the value", head(field{Name: "x-remote-user", Value: "ann\x00"}), "reset"},
		{"line break in the name", head(user, field{Name: "x\r\nx-remote-group", Value: "system:masters"}), "reset"},
		{"blank in the name", head(field{Name: "x-remote-user ", Value: "boss"}), "reset"},
		{"colon in the name", head(field{Name: "x-remote-user:", Value: "boss"}), "reset"},
		{"hop by hop", head(user, field{Name: "connection", Value: "x-remote-user"}), "400"},
		{"chunked", head(user, field{Name: "transfer-encoding", Value: "chunked"}), "400"},
		{"another host", head(user, field{Name: "host", Value: "elsewhere"}), "ann"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := s.newStream(t, proxy).send(t, tc.fields, nil); got != tc.want {
				t.Errorf("as the front proxy: read as %s, want %s", got, tc.want)
			}
			if got := s.newStream(t, nil).send(t, tc.fields, nil); got != "401" && got != "400" && got != "reset" {
				t.Errorf("without a certificate: read as %s, want 401, 400 or reset", got)
			}
		})
	}
	t.Run("header split in the middle", func(t *testing.T) {
		c := s.newStream(t, proxy)
		c.split = true
		if got := c.send(t, head(user), nil); got != "ann" {
			t.Errorf("read as %s, want ann", got)
		}
	})
	t.Run("trailers", func(t *testing.T) {
		late := []field{{Name: "x-remote-user", Value: "boss"}, {Name: "x-remote-group", Value: "system:masters"}}
		if got := s.newStream(t, proxy).send(t, head(field{Name: "trailer", Value: "x-remote-user"}),
			late); got != "401" {
			t.Errorf("a user in the trailer: read as %s, want 401", got)
		}
		if got := s.newStream(t, proxy).send(t, head(user, field{Name: "trailer", Value: "x-remote-group"}),
			late); got != "ann" {
			t.Errorf("a group in the trailer: read as %s, want ann", got)
		}
	})
	// HPACK keeps headers for the connection; a request must not inherit those of the previous
	// one.
	t.Run("the next request on the connection", func(t *testing.T) {
		c := s.newStream(t, proxy)
		for i, want := range []string{"ann", "401"} {
			if got := c.send(t, head([]field{user}[i:]...), nil); got != want {
				t.Errorf("request %d: read as %s, want %s", i+1, got, want)
			}
		}
	})
}

// stream is a connection on which a test writes the frames of one request after the other.
type stream struct {
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
	// id is the stream of the last request, next that of the following one; clients use odd
	// numbers.
	id, next uint32
	// split cuts the header block into two frames.
	split bool
}

func (s *server) newStream(t *testing.T, cert *tls.Certificate) *stream {
	t.Helper()
	conn := s.dial(t, cert, "h2")
	if got := conn.ConnectionState().NegotiatedProtocol; got != "h2" {
		t.Fatalf("negotiated %q, want h2", got)
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	c := &stream{framer: http2.NewFramer(conn, conn), next: 1}
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.encoder = hpack.NewEncoder(&c.block)
	if err := c.framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c
}

// send writes a request, and returns how the server read it. Write errors are left to the reader:
// the server may have closed the connection.
func (c *stream) send(t *testing.T, fields, trailer []field) string {
	t.Helper()
	c.id, c.next = c.next, c.next+2
	block := c.encode(t, fields)
	first := len(block)
	if c.split {
		first /= 2
	}
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.id, BlockFragment: block[:first],
		EndHeaders: !c.split})
	if c.split {
		_ = c.framer.WriteContinuation(c.id, true, block[first:])
	}
	_ = c.framer.WriteData(c.id, trailer == nil, []byte(reviewBody))
	if trailer != nil {
		_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.id, BlockFragment: c.encode(t, trailer),
			EndHeaders: true, EndStream: true})
	}
	return c.receive(t)
}

func (c *stream) encode(t *testing.T, fields []field) []byte {
	t.Helper()
	c.block.Reset()
	for _, f := range fields {
		if err := c.encoder.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	return bytes.Clone(c.block.Bytes())
}

func (c *stream) receive(t *testing.T) string {
	t.Helper()
	status, body := "", ""
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			if network := net.Error(nil); errors.As(err, &network) && network.Timeout() {
				t.Fatalf("no response: %v", err)
			}
			return "reset"
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = c.framer.WriteSettingsAck()
			}
		case *http2.GoAwayFrame:
			// Without credentials the connection ends after the response, which still arrives.
			if f.LastStreamID < c.id || f.ErrCode != http2.ErrCodeNo {
				return "reset"
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == c.id && status == "" {
				return "reset"
			}
		case *http2.MetaHeadersFrame:
			if f.StreamID == c.id {
				status = f.PseudoValue("status")
			}
		case *http2.DataFrame:
			body += string(f.Data())
		}
		if header := frame.Header(); header.StreamID == c.id && header.Flags.Has(http2.FlagDataEndStream) &&
			status != "" {
			if status != "201" {
				return status
			}
			return who(parseReview(t, body).UserInfo)
		}
	}
}
