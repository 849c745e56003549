// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
)

// verifyServing does what kube-aggregator does with the certificates that a server sends.
func verifyServing(chain, trust certs.Bundle, s certs.Service, now time.Time) error {
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: trust.Pool(), Intermediates: chain[1:].Pool(), DNSName: s.ServerName(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

// verdictOnly is what is left to do where an injector keeps the caBundle: say whether it vouches for our certificate.
func verdictOnly(changes []caBundleChange, src *Source, now time.Time) error {
	var errs []error
	for _, change := range changes {
		a := change.before
		_, injector := cluster.InjectedBy(a)
		if injector == "" {
			continue
		}
		if verifyServing(src.Chain, certs.LenientBundle(a.Spec.CABundle), src.service, now) != nil {
			errs = append(errs, fmt.Errorf("APIService %s: the caBundle that %s keeps does not vouch for %s",
				a.Name, injector, src.file(certs.CertFile)))
		}
	}
	return errors.Join(errs...)
}

// refuseBreaking refuses what can interrupt a running API: to distrust a CA whose certificates may be served, and to
// serve a certificate that is not trusted yet. A rotation does both in steps.
func (c Client) refuseBreaking(changes []caBundleChange, stored *corev1.Secret, src *Source) error {
	var errs []error
	for _, change := range changes {
		a := change.before
		trusted := certs.LenientBundle(a.Spec.CABundle).Merge(c.Time())
		if change.reason == "" || len(trusted) == 0 || a.Spec.InsecureSkipTLSVerify {
			continue // nothing that works now can break
		}
		for _, ca := range trusted {
			if !change.bundle.Contains(ca) {
				errs = append(errs, fmt.Errorf("APIService %s trusts %s (sha256 %s), which %s lacks: servers with a certificate of it would be refused; "+
					"rotate with certgen rotate, or allow it with --replace-trust", a.Name, ca.Subject, certs.Fingerprint(ca), src.file(certs.BundleFile)))
			}
		}
		if stored == nil {
			continue
		}
		if leaves := certs.LenientBundle(stored.Data[corev1.TLSCertKey]); len(leaves) > 0 && !leaves[0].Equal(src.Chain[0]) && verifyServing(src.Chain, trusted, src.service, c.Time()) != nil {
			errs = append(errs, fmt.Errorf("APIService %s does not trust the CA of %s yet, and every kube-apiserver must before the Secret changes; "+
				"rotate with certgen rotate, or apply without --secret, wait until all kube-apiservers have it, and apply again, or allow it with --replace-trust",
				a.Name, src.file(certs.CertFile)))
		}
	}
	return errors.Join(errs...)
}
