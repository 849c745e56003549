// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	cfsslclient "github.com/cloudflare/cfssl/api/client"
)

// remoteTimeout limits one signature request. cfssl's remote signer is not used, because its client
// has no timeout.
const remoteTimeout = 30 * time.Second

// RemoteSigner is a cfssl server that has the key of the serving CA. The server must serve TLS
// and require client certificates, because cfssl's own authentication keys do not prevent
// replay.
type RemoteSigner struct {
	URL     string // such as https://signer.example.com:8888
	Profile string // of the server's configuration; empty means its default
	CAs     Bundle // the only trusted CAs for the server's certificate
	Client  tls.Certificate
}

// Validate returns an *InvalidError for each invalid value, joined.
func (r *RemoteSigner) Validate() error {
	var errs []error
	// Without https, cfssl's client sends plain text; a comma in the URL defines a group of
	// servers.
	if u, err := url.Parse(r.URL); err != nil || u.Scheme != "https" || u.Host == "" ||
		strings.Trim(u.Path, "/") != "" || strings.Contains(r.URL, ",") {
		errs = append(errs, &InvalidError{"signer", r.URL, "expected a URL such as https://signer.example.com:8888"})
	}
	if len(r.CAs) == 0 {
		errs = append(errs, &InvalidError{"signer-ca", "", "expected the file with the CAs that verify the signer"})
	}
	if len(r.Client.Certificate) == 0 {
		errs = append(errs, &InvalidError{"signer-cert", "",
			"expected the client certificate for the signer, and --signer-key"})
	}
	return errors.Join(errs...)
}

// UnreachableError reports that a signer did not respond. A retry may succeed.
type UnreachableError struct{ error }

// unreachable wraps err in an UnreachableError if the signer did not respond. It matches the
// error text of cfssl's client, which does not wrap the cause. A TLS failure is not an
// UnreachableError.
func unreachable(err error) error {
	if said := err.Error(); strings.Contains(said, "failed POST to") && !strings.Contains(said, "tls: ") &&
		!strings.Contains(said, "x509: ") {
		return &UnreachableError{err}
	}
	return err
}

// sign lets the server sign the key in the request. The server chooses the certificate's
// lifetime within the allowed limits. All other properties are compared with s, as for a local
// signer.
func (r *RemoteSigner) sign(s spec, request *x509.CertificateRequest, issuer *x509.Certificate,
	now time.Time) (*x509.Certificate, error) {
	order, err := signRequestFor(s, request)
	if err != nil {
		return nil, err
	}
	order.Profile = r.Profile
	body, err := json.Marshal(order)
	if err != nil {
		return nil, fmt.Errorf("encode request to the signer: %w", err)
	}
	server := cfsslclient.NewServerTLS(r.URL, &tls.Config{RootCAs: r.CAs.Pool(),
		Certificates: []tls.Certificate{r.Client}, MinVersion: tls.VersionTLS12})
	server.SetRequestTimeout(remoteTimeout)
	certPEM, err := server.Sign(body)
	if err != nil {
		return nil, unreachable(fmt.Errorf("request signature from %s: %w", r.URL, err))
	}
	cert, err := parseCertificate(certPEM)
	if err != nil {
		return nil, fmt.Errorf("response of %s: %w", r.URL, err)
	}
	if now.Before(cert.NotBefore) || !now.Before(cert.NotAfter) ||
		cert.NotAfter.Sub(cert.NotBefore) > MaxLeafLifetime+backdate {
		return nil, fmt.Errorf(
			"response of %s: expected a certificate that is valid now and for at most 398 days, found one from %s to "+
				"%s; set the expiry in the server's profile",
			r.URL, timeText(cert.NotBefore), timeText(cert.NotAfter))
	}
	s.notBefore, s.notAfter = cert.NotBefore, cert.NotAfter
	if err := s.checkIssued(cert, issuer, request.PublicKey); err != nil {
		return nil, fmt.Errorf("response of %s: %w", r.URL, err)
	}
	return cert, nil
}

// RemoteCA returns a CA whose key is held by signer. It returns an error if cert cannot sign
// serving certificates now.
func RemoteCA(cert *x509.Certificate, signer *RemoteSigner, now func() time.Time) (*CA, error) {
	ca := &CA{KeyPair: KeyPair{Certificate: cert, CertPEM: Bundle{cert}.PEM()}, remote: signer, now: clock(now)}
	return ca, ca.mayIssue(x509.ExtKeyUsageServerAuth, ca.now())
}
