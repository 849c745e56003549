// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
)

// SecretOptions describe a Secret.
type SecretOptions struct {
	Name, Namespace string
	From            string // directory of a pair, such as pki/serving
	// AllowCAKey lets the key of a CA into the Secret. Whoever can read it can then make certificates.
	AllowCAKey bool
	Now        time.Time
}

// Validate returns all that is wrong with the options, as *certs.InvalidError joined by errors.Join.
func (o SecretOptions) Validate() error {
	var errs []error
	if problems := validation.IsDNS1123Subdomain(o.Name); len(problems) > 0 {
		errs = append(errs, &certs.InvalidError{Field: "name", Value: o.Name, Reason: "expected the Secret's name: " + strings.Join(problems, "; ")})
	}
	if problems := validation.IsDNS1123Label(o.Namespace); len(problems) > 0 {
		errs = append(errs, &certs.InvalidError{Field: "namespace", Value: o.Namespace, Reason: "expected the Secret's namespace: " + strings.Join(problems, "; ")})
	}
	if o.From == "" {
		errs = append(errs, &certs.InvalidError{Field: "from", Value: o.From, Reason: "expected the directory of a pair, such as pki/serving"})
	}
	return errors.Join(errs...)
}

// Secret returns a Secret of type kubernetes.io/tls: tls.crt, tls.key and, where the directory has it, ca.crt without
// CAs that have expired. It holds a private key. *certs.RefusedError says what is wrong with the pair.
func Secret(opts SecretOptions) ([]byte, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if err := Verify(opts.From, opts.Now); err != nil {
		return nil, err
	}
	data, err := PairData(certs.Dir(opts.From), "", opts.AllowCAKey, opts.Now)
	if err != nil {
		return nil, err
	}
	return encode(SecretConfig(opts.Name, opts.Namespace, data))
}

// SecretConfig is a Secret of type kubernetes.io/tls with those data.
func SecretConfig(name, namespace string, data map[string][]byte) *corev1ac.SecretApplyConfiguration {
	return corev1ac.Secret(name, namespace).WithType(corev1.SecretTypeTLS).WithData(data)
}

// PairData is what a Secret holds of a pair: certificates and key that match, written as every reader takes them, and the CAs in ca.crt, if
// there are any, that have not expired.
func PairData(store certs.Store, pair string, allowCAKey bool, now time.Time) (map[string][]byte, error) {
	files, err := store.Read(pair)
	if err != nil {
		return nil, err
	}
	chain, err := certs.ParseBundle(files[certs.CertFile].Data)
	if err != nil {
		return nil, &certs.RefusedError{Path: store.Path(pair, certs.CertFile), Reason: err.Error()}
	}
	if chain[0].IsCA && !allowCAKey {
		return nil, &certs.RefusedError{Path: store.Path(pair, certs.KeyFile), Reason: "expected the key of a leaf, found that of a CA, with which " +
			"anybody who reads the Secret can make certificates; name a leaf's directory, or allow it with --with-ca-key"}
	}
	key, err := certs.ParsePrivateKey(files[certs.KeyFile].Data)
	if err != nil {
		return nil, &certs.RefusedError{Path: store.Path(pair, certs.KeyFile), Reason: err.Error()}
	}
	keyPEM, err := certs.EncodePrivateKey(key)
	if err != nil {
		return nil, err
	}
	// The files were read one after the other; certgen init may have switched them in between.
	if _, err := tls.X509KeyPair(chain.PEM(), keyPEM); err != nil {
		return nil, fmt.Errorf("match key and certificate: %w; run this again if certgen init was at work", err)
	}
	data := map[string][]byte{certs.CertFile: chain.PEM(), certs.KeyFile: keyPEM}
	if file, ok := files[certs.BundleFile]; ok {
		bundle, err := ParseCAs(file.Data, store.Path(pair, certs.BundleFile), now)
		if err != nil {
			return nil, err
		}
		data[certs.BundleFile] = bundle.PEM()
	}
	return data, nil
}

// Verify refuses a pair's directory in which certgen verify finds an error. Any common name will do for a front proxy: what is allowed is
// not known here.
func Verify(dir string, now time.Time) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return &certs.RefusedError{Path: dir, Reason: "expected the directory of a pair, such as pki/serving, found none"}
	}
	certFile := filepath.Join(dir, certs.CertFile)
	if _, err := os.Stat(certFile); err != nil {
		return &certs.RefusedError{Path: certFile, Reason: "expected a certificate, found none; name the directory of one pair"}
	}
	report, err := verify.Paths([]string{certFile}, verify.Options{AllowedNames: []string{}, Now: now})
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range report.Findings {
		if f.Severity == verify.Error {
			errs = append(errs, &certs.RefusedError{Path: f.Object, Reason: fmt.Sprintf("%s %s; %s", f.ID, f.Evidence, f.Fix)})
		}
	}
	return errors.Join(errs...)
}
