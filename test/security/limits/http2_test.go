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

// frames is a connection of HTTP/2 on which a test writes every frame itself. What the server sends is read all the
// time: a server that cannot write stops to read.
type frames struct {
	conn    *tls.Conn
	out     *bufio.Writer
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
	// heard gets what matters of what the server sends, and is closed when the connection ends.
	heard chan heard
}

// heard is one of: the status of a stream, the end of a stream, a GOAWAY.
type heard struct {
	stream uint32
	status string
	goAway *http2.GoAwayFrame
}

// dialHTTP2 connects with the certificate, if there is one.
func dialHTTP2(t *testing.T, cert *tls.Certificate) *frames {
	t.Helper()
	conn := mustDial(t, func(c *tls.Config) {
		c.NextProtos = []string{"h2"}
		if cert != nil {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
		}
	})
	if err := conn.SetDeadline(time.Now().Add(envtest.Patience)); err != nil {
		t.Fatal(err)
	}
	c := &frames{conn: conn, out: bufio.NewWriterSize(conn, 64<<10), heard: make(chan heard, 100_000)}
	c.framer = http2.NewFramer(c.out, bufio.NewReader(conn))
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	// Writes that break the rules are what these tests are for.
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

// request is the header block of a GET. Its encoding depends on those before it on the connection.
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

// headers sends a block. Errors are left to the reader: the server may have hung up.
func (c *frames) headers(stream uint32, block []byte) {
	// 16 KiB is what every server takes in a frame.
	first := min(len(block), 16<<10)
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block[:first], EndStream: true,
		EndHeaders: first == len(block)})
	for block = block[first:]; len(block) > 0; block = block[first:] {
		first = min(len(block), 16<<10)
		_ = c.framer.WriteContinuation(stream, first == len(block), block[:first])
	}
}

// answer waits for the status of a stream; "closed" is a connection that ends before, with why if it is told.
func (c *frames) answer(stream uint32) string {
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

// frontProxy is the certificate of kube-apiserver.
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
