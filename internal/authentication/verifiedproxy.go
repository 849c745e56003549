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

// chainCache is how many front proxies are remembered: each kube-apiserver may have a certificate of its own, and
// two while it is rotated.
const chainCache = 32

// verifiedProxy recognizes the front proxy by its certificate, which is the same with every
// request. To verify its chain each time, as the library does, is most of what authentication
// costs. What was verified is remembered for the very same certificates and the very same CAs, and
// no longer than they are valid.
type verifiedProxy struct {
	config *authenticatorfactory.RequestHeaderConfig
	chains *lru.Cache // of *verifiedChain, by the hash of the certificates
	verify func(*x509.Certificate, x509.VerifyOptions) ([][]*x509.Certificate, error)
	now    func() time.Time
}

// verifiedChain is a success of Certificate.Verify.
type verifiedChain struct {
	roots        *x509.CertPool
	since, until time.Time // when it was verified, and when the first certificate in it expires
}

func newVerifiedProxy(config *authenticatorfactory.RequestHeaderConfig) *verifiedProxy {
	return &verifiedProxy{config: config, chains: lru.New(chainCache), verify: (*x509.Certificate).Verify,
		now: time.Now}
}

// isFrontProxy tells whether the front proxy sends the request. The error says why the certificate is not
// the front proxy's.
func (f *verifiedProxy) isFrontProxy(req *http.Request) (bool, error) {
	certificate := req.TLS.PeerCertificates[0]
	if known, err := f.verified(req.TLS.PeerCertificates); !known || err != nil {
		return false, err
	}
	names := f.config.AllowedClientNames.Value()
	if !frontproxy.AllowsName(names, certificate.Subject.CommonName) {
		return false, fmt.Errorf("x509: subject with cn=%s is not in the allowed list", certificate.Subject.CommonName)
	}
	// Without names every certificate of the CA is the front proxy's, and with a shared CA every
	// user's is. The header tells which is meant.
	return len(names) > 0 || slices.ContainsFunc(f.config.UsernameHeaders.Value(), func(name string) bool {
		return len(req.Header.Values(name)) > 0
	}), nil
}

// verified verifies the certificates as the library's verifier for the front proxy does. It returns
// false while no CA is known.
func (f *verifiedProxy) verified(chain []*x509.Certificate) (bool, error) {
	opts, ok := f.config.CAContentProvider.VerifyOptions()
	if !ok {
		return false, nil
	}
	key, now := hashOf(chain), f.now()
	// A clock that was set back is no proof.
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

// hashOf is that of the certificates as they came; DER tells where each ends.
func hashOf(chain []*x509.Certificate) [sha256.Size]byte {
	h := sha256.New()
	for _, cert := range chain {
		h.Write(cert.Raw)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
