// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/lru"
)

// rememberedChains is how many front proxies are remembered: each kube-apiserver may have a certificate of its own, and two while
// it is rotated.
const rememberedChains = 32

// verifiedProxy authenticates by the headers of the front proxy, whose certificate is the same with every request. The library verifies
// its chain each time, which is most of what authentication costs. What was verified is remembered here for the very same
// certificates and the very same trust, and no longer than they are valid; all else goes the library's way.
type verifiedProxy struct {
	config    *authenticatorfactory.RequestHeaderConfig
	verifying authenticator.Request // the library's: verifies the chain and the name, then reads the headers
	headers   authenticator.Request // reads the headers
	chains    *lru.Cache            // of *verifiedChain, by the hash of the certificates
	now       func() time.Time
}

// verifiedChain is a success of Certificate.Verify.
type verifiedChain struct {
	bundle       []byte    // the trust under which it was verified
	since, until time.Time // when it was verified, and when the first certificate in it expires
}

func newVerifiedProxy(config *authenticatorfactory.RequestHeaderConfig) (*verifiedProxy, error) {
	verifying, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{RequestHeaderConfig: config}.New()
	if err != nil {
		return nil, err
	}
	return &verifiedProxy{
		config:    config,
		verifying: verifying,
		headers: group.NewAuthenticatedGroupAdder(headerrequest.NewDynamic(
			config.UsernameHeaders, config.UIDHeaders, config.GroupHeaders, config.ExtraHeaderPrefixes)),
		chains: lru.New(rememberedChains),
		now:    time.Now,
	}, nil
}

// AuthenticateRequest implements authenticator.Request.
func (f *verifiedProxy) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return f.verifying.AuthenticateRequest(req)
	}
	key := hashOf(req.TLS.PeerCertificates)
	if f.remembered(key) && f.nameAllowed(req.TLS.PeerCertificates[0]) {
		return f.headers.AuthenticateRequest(req)
	}
	resp, ok, err := f.verifying.AuthenticateRequest(req)
	if ok && err == nil {
		f.remember(key, req.TLS.PeerCertificates)
	}
	return resp, ok, err
}

// hashOf is that of the certificates as they came; DER tells where each ends.
func hashOf(chain []*x509.Certificate) [sha256.Size]byte {
	h := sha256.New()
	for _, cert := range chain {
		h.Write(cert.Raw)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// remembered is true when these certificates would be verified again with the same result. A clock that was set back is no proof.
func (f *verifiedProxy) remembered(key [sha256.Size]byte) bool {
	value, ok := f.chains.Get(key)
	if !ok {
		return false
	}
	chain, now := value.(*verifiedChain), f.now()
	return bytes.Equal(chain.bundle, f.config.CAContentProvider.CurrentCABundleContent()) && !now.Before(chain.since) && !now.After(chain.until)
}

// remember verifies the certificates against a trust that it can name: the library's may have changed since. They are not remembered
// if that fails.
func (f *verifiedProxy) remember(key [sha256.Size]byte, chain []*x509.Certificate) {
	bundle, now := f.config.CAContentProvider.CurrentCABundleContent(), f.now()
	roots, err := certutil.NewPoolFromBytes(bundle)
	if err != nil {
		return
	}
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	verified, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return
	}
	until := chain[0].NotAfter
	for _, cert := range slices.Concat(verified...) {
		if cert.NotAfter.Before(until) {
			until = cert.NotAfter
		}
	}
	f.chains.Add(key, &verifiedChain{bundle, now, until})
}

// nameAllowed does what the library does after it verified: no names mean any, which Judge refuses unless it is tolerated.
func (f *verifiedProxy) nameAllowed(cert *x509.Certificate) bool {
	names := f.config.AllowedClientNames.Value()
	return len(names) == 0 || slices.Contains(names, cert.Subject.CommonName)
}
