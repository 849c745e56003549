// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// Attempt is a connection from the pod network to a server.
type Attempt struct {
	// ServerName is the name of the Service, and Address the host and port.
	ServerName string `json:"serverName"`
	Address    string `json:"address"`
	// Error is empty if the server sent a certificate.
	Error string `json:"error,omitempty"`
}

// target returns the argument of Probe.
func (a Attempt) target() string { return a.ServerName + "=" + a.Address }

// probeTimeout limits each attempt of Probe.
const probeTimeout = 5 * time.Second

// Probe connects to each target, which has the form SERVERNAME=HOST:PORT, at the same time. It ends
// a connection when the server has sent its certificate: it trusts no CA, and sends no request. It
// returns an error for a target of another form.
func Probe(ctx context.Context, targets []string) ([]Attempt, error) {
	out := make([]Attempt, len(targets))
	for i, target := range targets {
		name, address, found := strings.Cut(target, "=")
		if _, _, err := net.SplitHostPort(address); !found || err != nil {
			return nil, fmt.Errorf("target is %q: must be SERVERNAME=HOST:PORT", target)
		}
		out[i] = Attempt{ServerName: name, Address: address}
	}
	var all sync.WaitGroup
	for i := range out {
		all.Go(func() {
			if err := connect(ctx, out[i]); err != nil {
				out[i].Error = err.Error()
			}
		})
	}
	all.Wait()
	return out, nil
}

func connect(ctx context.Context, a Attempt) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{ServerName: a.ServerName, RootCAs: x509.NewCertPool(),
		MinVersion: tls.VersionTLS12}}
	connection, err := dialer.DialContext(ctx, "tcp", a.Address)
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return nil
	}
	if err != nil {
		return err
	}
	return connection.Close()
}
