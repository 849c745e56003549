// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/envtest"
)

// host returns the address of the konnectivity server of a kube-apiserver.
func host(t *testing.T, k *envtest.KubeAPIServer) string {
	t.Helper()
	address, _, err := net.SplitHostPort(k.Address())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func certificate(t *testing.T, g generation, pair string) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(g.read(t, pair, certs.CertFile), g.read(t, pair, certs.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func serial(cert *x509.Certificate) string { return cert.SerialNumber.String() }

// handshake presents the certificate pair of g to a konnectivity server. It trusts the CAs of
// trusted. It returns the server's certificate, and an error if the server rejected the client's.
func handshake(t *testing.T, conn net.Conn, name string, g generation, pair string,
	trusted ...generation) (*x509.Certificate, error) {
	t.Helper()
	defer conn.Close()
	roots := x509.NewCertPool()
	for _, g := range trusted {
		roots.AppendCertsFromPEM(g.read(t, pair, certs.BundleFile))
	}
	ours := certificate(t, g, pair)
	var theirs *x509.Certificate
	client := tls.Client(conn, &tls.Config{ //nolint:gosec // with TLS 1.3 a client learns that it was refused only when it reads
		RootCAs: roots, ServerName: name, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
		MaxVersion: tls.VersionTLS12,
		// Not Certificates: the client would present only one of a CA that the server lists.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &ours, nil },
		VerifyConnection: func(state tls.ConnectionState) error {
			theirs = state.PeerCertificates[0]
			return nil
		},
	})
	err := client.HandshakeContext(t.Context())
	if theirs == nil {
		t.Fatalf("the konnectivity server %s showed no certificate of a CA of %q: %v", name, trusted, err)
	}
	return theirs, err
}

// shown returns the serial numbers of the certificates that the servers present to agents.
func shown(t *testing.T, e *envtest.Environment, trusted ...generation) []string {
	t.Helper()
	var out []string
	for _, k := range e.KubeAPIServers {
		conn, err := e.DialFromNode(t.Context(), k.Address())
		if err != nil {
			t.Fatal(err)
		}
		theirs, _ := handshake(t, conn, host(t, k), trusted[0], certs.KonnectivityAgentDir, trusted...)
		out = append(out, serial(theirs))
	}
	return out
}

// accepted checks whether the konnectivity server with mutual TLS accepts agents and
// kube-apiservers of the generation.
func accepted(t *testing.T, e *envtest.Environment, g generation, want bool) {
	t.Helper()
	k, live := only(e), generation(e.PKI())
	agent, err1 := e.DialFromNode(t.Context(), k.Address())
	apiServer, err2 := k.Dial(t.Context(), "127.0.0.1:8131")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	_, asAgent := handshake(t, agent, host(t, k), g, certs.KonnectivityAgentDir, live)
	_, asAPIServer := handshake(t, apiServer, "127.0.0.1", g, certs.KonnectivityAPIServerClientDir, live)
	for who, err := range map[string]error{"an agent": asAgent, "kube-apiserver": asAPIServer} {
		if refused := err != nil && strings.Contains(err.Error(), "remote error: tls:"); refused == want ||
			err != nil && !refused {
			t.Errorf("the server responds to %s with a certificate of %s: %v; want it accepted: %t", who, g, err, want)
		}
	}
}

// refusedByAgents gives a server a certificate that its agents no longer trust.
func refusedByAgents(t *testing.T, e *envtest.Environment, old generation) {
	t.Helper()
	k := e.KubeAPIServers[1]
	agent := k.Agents[0]
	refused(t, e, k, old, certs.KonnectivityAgentServerDir, agent.Log(), func(ctx context.Context) error {
		if err := agent.Ready(ctx); err == nil {
			return errors.New("the agent is ready, want that it has no server")
		}
		return nil
	})
}

// refusedByKubeAPIServer gives the server with TCP a certificate that its kube-apiserver no longer
// trusts.
func refusedByKubeAPIServer(t *testing.T, e *envtest.Environment, old generation) {
	t.Helper()
	k, config := only(e), e.Admin(t)
	refused(t, e, k, old, certs.KonnectivityServerDir, k.Log(), func(ctx context.Context) error {
		if err := get(ctx, config, gadgets+"?limit=1"); err == nil {
			return errors.New("our API responds, want that kube-apiserver does not reach it")
		}
		return nil
	})
}

// refused restarts a server with the certificate of an old pair, and waits until the client's log
// reports why it rejects it.
func refused(t *testing.T, e *envtest.Environment, k *envtest.KubeAPIServer, old generation, pair, log string,
	effect func(context.Context) error) {
	t.Helper()
	before, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	old.install(t, e, pair, generation(e.PKI()).read(t, pair, certs.BundleFile))
	if err := restart(t, e, k, "servers"); err != nil {
		t.Fatal(err)
	}
	const says = "certificate signed by unknown authority"
	e.Eventually(t, "the client of "+pair+" to refuse it", envtest.WaitTimeout, func(ctx context.Context) error {
		if err := effect(ctx); err != nil {
			return err
		}
		data, err := os.ReadFile(log)
		if err == nil && !strings.Contains(string(data[len(before):]), says) {
			err = fmt.Errorf("%s does not say %q", log, says)
		}
		return err
	})
}
