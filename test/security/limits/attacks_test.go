// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// longChain is a user whose certificate is repeated until it fills a handshake.
const longChain = "long-chain"

// impersonationAtLivez requests impersonation at /livez as an anonymous user, like kubelet's
// probes.
func (a *attacker) impersonationAtLivez() error {
	return a.exchange(func() string {
		return fmt.Sprintf("GET /livez HTTP/1.1\r\nHost: x\r\nImpersonate-User: u%d\r\n\r\n", a.count.Add(1))
	}, "")
}

// selectors sends label selectors of the maximum length of a request line.
func (a *attacker) selectors() error {
	selector := strings.Repeat("a,", 500_000)
	return a.exchange(func() string {
		return fmt.Sprintf("GET %s?labelSelector=%sb%d HTTP/1.1\r\nHost: x\r\n\r\n", a.path, selector, a.count.Add(1))
	}, "")
}

// slowBodyOfRead slowly sends a body that the server does not read, with a request whose response
// is long.
func (a *attacker) slowBodyOfRead() error {
	return a.trickle("GET /openapi/v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n", " ")
}

// manyFields is the unterminated head of a request with 100,000 fields.
var manyFields = sync.OnceValue(func() string {
	var head strings.Builder
	head.WriteString("GET /livez HTTP/1.1\r\nHost: x\r\n")
	for i := range 100_000 {
		fmt.Fprintf(&head, "%x:\n", 0xa0000+i)
	}
	return head.String()
})

// openHead sends a head of many fields and does not terminate it.
func (a *attacker) openHead() error { return a.trickle(manyFields(), "x") }

// openHeadHTTP2 sends 60,000 indexed fields of HPACK's table, a byte each, and does not terminate
// the head.
func (a *attacker) openHeadHTTP2() error {
	framer, out, ended, err := a.http2()
	if err != nil {
		return err
	}
	a.sent.Add(1)
	const accept = 0x80 | 19 // accept: with an empty value, RFC 7541 appendix A
	block := bytes.Repeat([]byte{accept}, 15_000)
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1,
		BlockFragment: append([]byte{0x82, 0x87, 0x84}, block...)}); err != nil {
		return err
	}
	for range 3 {
		if err := framer.WriteContinuation(1, false, block); err != nil {
			return err
		}
	}
	err = out.Flush()
	a.wait(ended)
	return err
}

// frames sends no request, only the shortest possible frames, which cost the server more than
// their bytes.
func (a *attacker) frames() error {
	framer, out, ended, err := a.http2()
	if err != nil {
		return err
	}
	a.sent.Add(1)
	for a.ctx.Err() == nil && err == nil {
		for range 1000 {
			err = errors.Join(err, framer.WriteRawFrame(0x42, 0, 0, nil), // of an unknown type
				framer.WriteWindowUpdate(0, 1))
		}
		err = errors.Join(err, out.Flush())
	}
	a.wait(ended)
	return err
}

// chain opens a connection and sends one request.
func (a *attacker) chain() error {
	conn, err := a.dial("http/1.1")
	if err != nil {
		return err
	}
	defer conn.Close()
	a.sent.Add(1)
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", a.path)
	if err == nil {
		_, err = conn.Read(make([]byte, 100))
	}
	return err
}

// get requests the paths over HTTP/2, each on its own stream.
func (a *attacker) get(framer *http2.Framer, out *bufio.Writer, paths func() string) error {
	streams := newStreamOpener(framer)
	for stream := uint32(1); stream < 200; stream += 2 {
		a.sent.Add(1)
		if err := streams.open(stream, http.MethodGet, paths()); err != nil {
			return err
		}
	}
	return out.Flush()
}

// unread reads no byte of any response.
func (a *attacker) unread() error {
	framer, out, ended, err := a.http2(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	if err != nil {
		return err
	}
	err = a.get(framer, out, func() string { return "/livez" })
	a.wait(ended)
	return err
}

// unreadDocuments requests documents, one after the other on a connection, and reads no byte.
func (a *attacker) unreadDocuments() error {
	conn, err := a.dial("http/1.1")
	if err != nil {
		return err
	}
	defer conn.Close()
	for range 200 {
		a.sent.Add(1)
		if _, err := io.WriteString(conn, "GET /openapi/v2 HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
	}
	for a.ctx.Err() == nil {
		sleep(a.ctx, time.Second)
		if _, err := io.WriteString(conn, "\r\n"); err != nil { // the server has closed the connection
			return err
		}
	}
	return nil
}

// smallFrames sends frames that cost much CPU time for their length.
func (a *attacker) smallFrames() error {
	framer, out, ended, err := a.http2()
	if err != nil {
		return err
	}
	for i := uint32(0); a.ctx.Err() == nil && err == nil; i++ {
		for range 100 {
			a.sent.Add(2)
			err = errors.Join(err, framer.WritePing(false, [8]byte{}),
				framer.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: i % 4096}))
		}
		err = errors.Join(err, out.Flush())
	}
	a.wait(ended)
	return err
}

// watches opens watches and keeps them open.
func (a *attacker) watches() error {
	framer, out, ended, err := a.http2()
	if err != nil {
		return err
	}
	err = a.get(framer, out, func() string {
		return fmt.Sprintf("%s?watch=1&fieldSelector=metadata.name%%3Dw%d", a.path, a.count.Add(1))
	})
	a.wait(ended)
	return err
}

// yamlLists requests all objects as YAML.
func (a *attacker) yamlLists() error {
	return a.exchange(func() string {
		return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nAccept: application/yaml\r\n\r\n", a.path)
	}, "")
}

// jsonLists requests all objects as JSON repeatedly.
func (a *attacker) jsonLists() error {
	return a.exchange(func() string {
		return fmt.Sprintf("GET %s?resourceVersion=0 HTTP/1.1\r\nHost: x\r\n\r\n", a.path)
	}, "")
}

// readable are paths that any user, or any authenticated user, may read.
var readable = []string{"/healthz", "/readyz", "/apis", "/apis/workshop.example.com/v1", "/openapi/v3", "/version"}

// aliases returns a YAML document of almost 3 MiB: a list, and an alias of its last value.
func aliases() string { return "{" + strings.Repeat("a,", (3<<20-1<<10)/2) + "&x b: *x}" }

func (a *attacker) bodies(body string) error {
	return a.exchange(func() string {
		return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/yaml\r\nContent-Length: %d\r\n\r\n",
			readable[a.count.Add(1)%int64(len(readable))], len(body))
	}, body)
}

// aliasesProxied requests a discovery document of the API, which any authenticated user may read.
func (a *attacker) aliasesProxied() error {
	version, _, _ := strings.Cut(a.path, "/namespaces/")
	body := aliases()
	return a.exchange(func() string {
		return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/yaml\r\nContent-Length: %d\r\n\r\n",
			version, len(body))
	}, body)
}

func (a *attacker) consoles() error {
	return a.exchange(func() string {
		return fmt.Sprintf("GET %s/w%d/console HTTP/1.1\r\nHost: x\r\n"+
			"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "+
			"AQIDBAUGBwgJCgsMDQ4PEA==\r\n"+
			"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n", a.path, a.count.Add(1))
	}, "")
}

func (a *attacker) names() error {
	return a.exchange(func() string {
		return fmt.Sprintf("GET %s/w%d HTTP/1.1\r\nHost: x\r\n\r\n", a.path, a.count.Add(1))
	}, "")
}

// logs requests logs, which are long-running requests, without the permission to read them.
func (a *attacker) logs() error {
	return a.exchange(func() string {
		return fmt.Sprintf("GET %s/w%d/log?follow=true HTTP/1.1\r\nHost: x\r\n\r\n", a.path, a.count.Add(1))
	}, "")
}

func (a *attacker) impersonation() error {
	return a.exchange(func() string {
		return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nImpersonate-User: u%d\r\n\r\n", a.path, a.count.Add(1))
	}, "")
}

func (a *attacker) tokens() error {
	return a.exchange(func() string {
		return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t%d\r\n\r\n", a.path, a.count.Add(1))
	}, "")
}

// hold opens a connection and sends nothing.
func (a *attacker) hold() error {
	conn, err := a.dial("http/1.1")
	if err != nil {
		return err
	}
	defer conn.Close()
	a.sent.Add(1)
	_, err = conn.Read(make([]byte, 1))
	return err
}

// handshakes opens connections that do not end their handshakes, so that others wait, and sends as
// much as the kernel stores for one that waits.
func (a *attacker) handshakes() error {
	conn, err := a.dialTCP()
	if err != nil {
		return err
	}
	defer conn.Close()
	context.AfterFunc(a.ctx, func() { _ = conn.Close() })
	record := []byte{22, 3, 1, 64, 0} // a handshake message of 16 KiB
	if a.sent.Add(1)%4 != 0 {
		record = append(record, make([]byte, 256<<10)...)
	}
	go func() { _, _ = conn.Write(record) }()
	_, err = io.Copy(io.Discard, conn)
	return err
}

// slowBody sends the head of a request and then its body a byte at a time.
func (a *attacker) slowBody() error {
	return a.trickle(fmt.Sprintf(
		"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 200000\r\n\r\n", a.path), " ")
}

// streams opens as many streams as HTTP/2 allows and ends none of them. On each it sends as much
// of a body as the server accepts. The header, if not empty, has another value each time.
func (a *attacker) streams(header string) error {
	framer, out, ended, err := a.http2()
	if err != nil {
		return err
	}
	streams, data := newStreamOpener(framer), make([]byte, 16<<10)
	for stream := uint32(1); stream < 200 && a.ctx.Err() == nil; stream += 2 {
		fields := []hpack.HeaderField{{Name: "content-type", Value: "application/json"}}
		if header != "" {
			fields = append(fields, hpack.HeaderField{Name: header, Value: fmt.Sprintf("Bearer u%d", a.count.Load())})
		}
		a.sent.Add(1)
		if err := streams.open(stream, http.MethodPost, fmt.Sprintf("%s/w%d", a.path, a.count.Add(1)),
			fields...); err != nil {
			return err
		}
		// The server allows 256 KiB for each stream.
		for range 15 {
			if err := framer.WriteData(stream, false, data); err != nil {
				return err
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	select {
	case <-ended:
	case <-a.ctx.Done():
	case <-time.After(2 * time.Second):
	}
	return nil
}

// anything sends each attack of a single user in turn.
func (a *attacker) anything() error {
	return [](func() error){
		func() error { return a.streams("") }, func() error { return a.streams("impersonate-user") }, a.unread,
		a.openHeadHTTP2,
		func() error { return a.bodies(aliases()) }, a.selectors, a.consoles, a.names, a.impersonation,
		a.impersonationAtLivez,
		a.hold, a.slowBody, a.slowBodyOfRead, a.openHead,
	}[a.turn.Add(1)%14]()
}
