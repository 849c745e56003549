// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

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

type secret struct {
	object
	Type string            `json:"type"`
	Data map[string][]byte `json:"data"` // encoding/json writes bytes as base64
}

// Secret returns a Secret of type kubernetes.io/tls: tls.crt, tls.key and, where the directory has it, ca.crt without
// CAs that have expired. It holds a private key. *certs.RefusedError says what is wrong with the pair.
func Secret(opts SecretOptions) ([]byte, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if err := refuseErrors(opts); err != nil {
		return nil, err
	}
	certPEM, err := os.ReadFile(filepath.Join(opts.From, certs.CertFile))
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	chain, err := certs.ParseBundle(certPEM)
	if err != nil {
		return nil, &certs.RefusedError{Path: filepath.Join(opts.From, certs.CertFile), Reason: err.Error()}
	}
	keyFile := filepath.Join(opts.From, certs.KeyFile)
	if chain[0].IsCA && !opts.AllowCAKey {
		return nil, &certs.RefusedError{Path: keyFile, Reason: "expected the key of a leaf, found that of a CA, with which " +
			"anybody who reads the Secret can make certificates; name a leaf's directory, or allow it with --with-ca-key"}
	}
	keyPEM, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	key, err := certs.ParsePrivateKey(keyPEM)
	if err != nil {
		return nil, &certs.RefusedError{Path: keyFile, Reason: err.Error()}
	}
	if keyPEM, err = certs.EncodePrivateKey(key); err != nil {
		return nil, err
	}
	// The files were read one after the other; certgen init may have switched them in between.
	if _, err := tls.X509KeyPair(chain.PEM(), keyPEM); err != nil {
		return nil, fmt.Errorf("match key and certificate: %w; run this again if certgen init was at work", err)
	}
	s := secret{
		object: object{"v1", "Secret", metadata{Name: opts.Name, Namespace: opts.Namespace}}, Type: "kubernetes.io/tls",
		Data: map[string][]byte{certs.CertFile: chain.PEM(), certs.KeyFile: keyPEM},
	}
	bundle, err := ReadBundle(filepath.Join(opts.From, certs.BundleFile), opts.Now)
	if err == nil {
		s.Data[certs.BundleFile] = bundle.PEM()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return encode(s)
}

// refuseErrors has the pair verified. Any common name will do for a front proxy: what is allowed is not known here.
func refuseErrors(opts SecretOptions) error {
	if info, err := os.Stat(opts.From); err != nil || !info.IsDir() {
		return &certs.RefusedError{Path: opts.From, Reason: "expected the directory of a pair, such as pki/serving, found none"}
	}
	certFile := filepath.Join(opts.From, certs.CertFile)
	if _, err := os.Stat(certFile); err != nil {
		return &certs.RefusedError{Path: certFile, Reason: "expected a certificate, found none; name the directory of one pair"}
	}
	report, err := verify.Paths([]string{certFile}, verify.Options{AllowedNames: []string{}, Now: opts.Now})
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
