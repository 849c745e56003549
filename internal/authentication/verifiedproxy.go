// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/utils/lru"

	"example.com/extension-apiserver/internal/frontproxy"
)

// chainCache is how many front-proxy certificates are cached. Each kube-apiserver may have its own
// certificate, and two during a rotation.
const chainCache = 32

// verifiedProxy recognizes the front proxy by its certificate, which is the same in every request.
// Verifying its chain each time, as the library does, is most of the cost of authentication.
// verifiedProxy caches a verification for exactly the same certificates and CAs, and no longer
// than they are valid.
type verifiedProxy struct {
	config *authenticatorfactory.RequestHeaderConfig
	chains *lru.Cache // *verifiedChain by the hash of the certificates
	verify func(*x509.Certificate, x509.VerifyOptions) ([][]*x509.Certificate, error)
	now    func() time.Time
}

// verifiedChain records a successful Certificate.Verify.
type verifiedChain struct {
	roots        *x509.CertPool
	since, until time.Time // when it was verified, and when the first certificate in it expires
}

func newVerifiedProxy(config *authenticatorfactory.RequestHeaderConfig) *verifiedProxy {
	return &verifiedProxy{config: config, chains: lru.New(chainCache), verify: (*x509.Certificate).Verify,
		now: time.Now}
}

// isFrontProxy reports whether the front proxy sent the request. The error explains why the
// certificate is not the front proxy's.
func (f *verifiedProxy) isFrontProxy(req *http.Request) (bool, error) {
	certificate := req.TLS.PeerCertificates[0]
	if known, err := f.verified(req.TLS.PeerCertificates); !known || err != nil {
		return false, err
	}
	names := f.config.AllowedClientNames.Value()
	if !frontproxy.AllowsName(names, certificate.Subject.CommonName) {
		return false, fmt.Errorf("x509: subject with cn=%s is not in the allowed list", certificate.Subject.CommonName)
	}
	// Without names, every certificate of the CA is the front proxy's, and with a shared CA, every
	// user's certificate is. The header distinguishes them.
	return len(names) > 0 || slices.ContainsFunc(f.config.UsernameHeaders.Value(), func(name string) bool {
		return len(req.Header.Values(name)) > 0
	}), nil
}

// verified verifies the certificates as the library's verifier for the front proxy does. It
// returns false while no CA is known.
func (f *verifiedProxy) verified(chain []*x509.Certificate) (bool, error) {
	opts, ok := f.config.CAContentProvider.VerifyOptions()
	if !ok {
		return false, nil
	}
	key, now := hashOf(chain), f.now()
	// A cached result is not used while the clock is behind the time of the verification.
	if value, ok := f.chains.Get(key); ok {
		if before := value.(*verifiedChain); before.roots.Equal(opts.Roots) && !now.Before(before.since) &&
			!now.After(before.until) {
			return true, nil
		}
	}
	opts.CurrentTime, opts.Intermediates = now, x509.NewCertPool()
	for _, cert := range chain[1:] {
		opts.Intermediates.AddCert(cert)
	}
	chains, err := f.verify(chain[0], opts)
	if err != nil {
		return false, err
	}
	until := chain[0].NotAfter
	for _, cert := range slices.Concat(chains...) {
		if cert.NotAfter.Before(until) {
			until = cert.NotAfter
		}
	}
	f.chains.Add(key, &verifiedChain{opts.Roots, now, until})
	return true, nil
}

// hashOf returns the hash of the certificates in the order in which they were received. DER
// determines where each certificate ends.
func hashOf(chain []*x509.Certificate) [sha256.Size]byte {
	h := sha256.New()
	for _, cert := range chain {
		h.Write(cert.Raw)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
