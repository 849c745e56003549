// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"example.com/extension-apiserver/internal/certs"
)

// frames is an HTTP/2 connection on which a test writes every frame itself. It continuously reads
// from the server: a server that cannot write stops to read.
type frames struct {
	conn    *tls.Conn
	out     *bufio.Writer
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
	// heard receives the relevant events from the server, and is closed when the connection ends.
	heard chan heard
}

// heard is one of: the status of a stream, the end of a stream, a GOAWAY.
type heard struct {
	stream uint32
	status string
	goAway *http2.GoAwayFrame
}

// dialHTTP2 connects with the certificate, unless it is nil.
func dialHTTP2(t *testing.T, cert *tls.Certificate) *frames {
	t.Helper()
	conn := mustDial(t, func(c *tls.Config) {
		c.NextProtos = []string{"h2"}
		if cert != nil {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
		}
	})
	if err := conn.SetDeadline(time.Now().Add(envtest.WaitTimeout)); err != nil {
		t.Fatal(err)
	}
	c := &frames{conn: conn, out: bufio.NewWriterSize(conn, 64<<10), heard: make(chan heard, 100_000)}
	c.framer = http2.NewFramer(c.out, bufio.NewReader(conn))
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	// These tests need writes that violate the protocol.
	c.framer.AllowIllegalWrites = true
	c.encoder = hpack.NewEncoder(&c.block)
	if _, err := io.WriteString(c.out, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := c.framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if err := c.framer.WriteSettingsAck(); err != nil {
		t.Fatal(err)
	}
	go c.listen()
	return c
}

func (c *frames) listen() {
	defer close(c.heard)
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.GoAwayFrame:
			copied := *f
			c.heard <- heard{goAway: &copied}
		case *http2.MetaHeadersFrame:
			c.heard <- heard{stream: f.StreamID, status: f.PseudoValue("status")}
		}
	}
}

// request returns the header block of a GET. Its encoding depends on earlier blocks on the
// connection.
func (c *frames) request(t *testing.T, path string, more ...hpack.HeaderField) []byte {
	t.Helper()
	c.block.Reset()
	for _, field := range append([]hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "x"},
		{Name: ":path", Value: path},
	}, more...) {
		if err := c.encoder.WriteField(field); err != nil {
			t.Fatal(err)
		}
	}
	return bytes.Clone(c.block.Bytes())
}

// get sends a request in as many frames as it needs.
func (c *frames) get(t *testing.T, stream uint32, path string, more ...hpack.HeaderField) {
	t.Helper()
	c.headers(stream, c.request(t, path, more...))
	_ = c.out.Flush()
}

// headers sends a block. It ignores errors, which the reader reports: the server may have closed
// the connection.
func (c *frames) headers(stream uint32, block []byte) {
	// Every server accepts frames of 16 KiB.
	first := min(len(block), 16<<10)
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block[:first], EndStream: true,
		EndHeaders: first == len(block)})
	for block = block[first:]; len(block) > 0; block = block[first:] {
		first = min(len(block), 16<<10)
		_ = c.framer.WriteContinuation(stream, first == len(block), block[:first])
	}
}

// await waits for the status of a stream. It returns "closed" if the connection ends before, with
// the error code of the GOAWAY, if any.
func (c *frames) await(stream uint32) string {
	why := "closed"
	for h := range c.heard {
		if h.stream == stream && stream != 0 {
			return h.status
		}
		if h.goAway != nil && h.goAway.ErrCode != http2.ErrCodeNo {
			why = "closed: " + h.goAway.ErrCode.String()
		}
	}
	return why
}

// frontProxy returns the front-proxy certificate of kube-apiserver.
func frontProxy(t *testing.T) *tls.Certificate {
	t.Helper()
	dir := filepath.Join(shared.PKI(), certs.FrontProxyClientDir)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, certs.CertFile), filepath.Join(dir, certs.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

func extras(count int, value string) []hpack.HeaderField {
	fields := []hpack.HeaderField{{Name: "x-remote-user", Value: "ann"}}
	for i := range count {
		fields = append(fields, hpack.HeaderField{Name: "x-remote-extra-" + strconv.Itoa(i), Value: value,
			Sensitive: true})
	}
	return fields
}
