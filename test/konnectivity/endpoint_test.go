// SPDX-License-Identifier: Apache-2.0

//go:build measure

package konnectivity

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.com/extension-apiserver/test/env"
)

// endpointPort is where what the test's own tunnels lead to listens.
const endpointPort = 8233

// endpoint listens on the node. It answers "flood" with more than a reader that stalls takes, and anything else with the same.
func endpoint(t *testing.T, e *env.Environment) {
	t.Helper()
	listener, err := e.ListenOnNode(endpointPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go answer(conn)
		}
	}()
}

func answer(conn net.Conn) {
	defer conn.Close()
	said := make([]byte, len("flood"))
	for {
		n, err := conn.Read(said)
		if err != nil {
			return
		}
		answer := said[:n]
		if string(answer) == "flood" {
			answer = bytes.Repeat([]byte("x"), stalled)
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

func connect(t *testing.T, e *env.Environment) net.Conn {
	t.Helper()
	conn, err := tryConnect(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// tryConnect connects to the endpoint through the server, as kube-apiserver does.
func tryConnect(ctx context.Context, e *env.Environment) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(e.Dir, "control-plane-1", "konnectivity-server.socket"))
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("%s:%d", env.NodeAddress, endpointPort)
	if _, err := fmt.Fprintf(conn, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", address); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("CONNECT: %s", resp.Status), resp.Body.Close(), conn.Close())
	}
	return conn, resp.Body.Close()
}

// echoes counts the tunnels that carry a byte and its answer. The others have two seconds.
func echoes(t *testing.T, all []net.Conn) int {
	t.Helper()
	deadline, count := time.Now().Add(requestTimeout), 0
	for _, conn := range all {
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatalf("a tunnel is closed: %v", err)
		}
	}
	for _, conn := range all {
		if err := conn.SetReadDeadline(deadline); err != nil {
			t.Fatal(err)
		}
		switch _, err := io.ReadFull(conn, make([]byte, 1)); {
		case err == nil:
			count++
		case !errors.Is(err, os.ErrDeadlineExceeded):
			t.Errorf("a tunnel is closed: %v", err)
		}
	}
	return count
}
