// SPDX-License-Identifier: Apache-2.0

// Package console is a client of the console of a Widget, an exec-like streaming session. It uses
// the client code of kubectl exec. Tests of long-running connections use it.
package console

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"example.com/extension-apiserver/pkg/envtest"
)

// patience is the time limit for a response or the end of the session, long enough for a busy
// machine.
const patience = time.Minute

// Console is an open console.
type Console struct {
	// In is the input. Close it to end the session.
	In *io.PipeWriter
	// Out is the output, ErrOut the error output. Both must be read, or the console blocks.
	Out, ErrOut *bufio.Scanner
	// Ended receives the result of the session as the server reports it: nil for success.
	Ended <-chan error

	out *io.PipeWriter
}

// Open connects as the user of the config, with its Dial or its proxy. The console ends when ctx
// is done. If it cannot be opened, Ended receives the error.
func Open(ctx context.Context, t testing.TB, config *rest.Config, namespace, name string) *Console {
	t.Helper()
	address := strings.TrimPrefix(config.Host, "https://")
	if config.Dial != nil {
		config, address = throughListener(t, config, address)
	}
	target := url.URL{Scheme: "https", Host: address,
		Path: "/apis/workshop.example.com/v1/namespaces/" + namespace + "/widgets/" + name + "/console"}
	executor, err := remotecommand.NewWebSocketExecutor(config, "GET", target.String())
	if err != nil {
		t.Fatal(err)
	}
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	stderr, errOut := io.Pipe()
	ended := make(chan error, 1)
	c := &Console{In: stdin, Out: bufio.NewScanner(stdout), ErrOut: bufio.NewScanner(stderr), Ended: ended, out: out}
	go func() {
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: errOut})
		in.CloseWithError(err) // otherwise a writer blocks forever
		out.CloseWithError(err)
		errOut.CloseWithError(err)
		ended <- err
	}()
	return c
}

// throughListener returns a config and an address that reach kube-apiserver through a local
// listener. remotecommand ignores config.Dial and dials in the network of this process.
func throughListener(t testing.TB, config *rest.Config, kubeAPIServer string) (*rest.Config, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dial := config.Dial
	envtest.Forward(t, listener, func(ctx context.Context) (net.Conn, error) { return dial(ctx, "tcp", kubeAPIServer) })
	config = rest.CopyConfig(config)
	if config.ServerName == "" {
		// The listener's address is not in the certificate.
		if config.ServerName, _, err = net.SplitHostPort(kubeAPIServer); err != nil {
			t.Fatal(err)
		}
	}
	return config, listener.Addr().String()
}

// Say sends a line.
func (c *Console) Say(t testing.TB, line string) {
	t.Helper()
	if _, err := io.WriteString(c.In, line+"\n"); err != nil {
		t.Fatalf("say %q: %v", line, err)
	}
}

// ExpectLine reads a line from Out or ErrOut and checks that it starts with want.
func (c *Console) ExpectLine(t testing.TB, from *bufio.Scanner, want string) {
	t.Helper()
	silent := time.AfterFunc(patience, func() { c.out.CloseWithError(fmt.Errorf("no output for %s", patience)) })
	defer silent.Stop()
	if !from.Scan() {
		t.Fatalf("the console ended (%v), want the line %q", from.Err(), want)
	}
	if got := from.Text(); !strings.HasPrefix(got, want) {
		t.Errorf("got the line %q, want %q", got, want)
	}
}

// Echo sends an echo command and checks its output.
func (c *Console) Echo(t testing.TB, words string) {
	t.Helper()
	c.Say(t, "echo "+words)
	c.ExpectLine(t, c.Out, words)
}

// End waits for the end of the session and returns the result that the server reported.
func (c *Console) End(t testing.TB) error {
	t.Helper()
	select {
	case err := <-c.Ended:
		return err
	case <-time.After(patience):
		t.Fatalf("the console is open after %s, want it ended", patience)
		return nil
	}
}
