// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	apiregistrationv1ac "k8s.io/kube-aggregator/pkg/client/applyconfiguration/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
)

// CABundleOptions describe patches of APIServices.
type CABundleOptions struct {
	APIServices []string // names, such as v1.workshop.example.com
	From        string   // a file of CAs, or a directory that holds ca.crt
	Now         time.Time
}

// Validate returns all that is wrong with the options, as *certs.InvalidError joined by errors.Join.
func (o CABundleOptions) Validate() error {
	var errs []error
	invalid := func(field, value, reason string) {
		errs = append(errs, &certs.InvalidError{Field: field, Value: value, Reason: reason})
	}
	if len(o.APIServices) == 0 {
		invalid("apiservice", "", "expected the name of at least one APIService, such as v1.workshop.example.com")
	}
	for _, name := range o.APIServices {
		// kube-aggregator demands version and group as the name; a group that is served elsewhere has a dot.
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || strings.Count(name, ".") < 2 {
			invalid("apiservice", name, strings.Join(append([]string{"expected <version>.<group>, such as v1.workshop.example.com"}, problems...), "; "))
		}
	}
	if o.From == "" {
		invalid("from", o.From, "expected a file of CAs, or a directory that holds ca.crt, such as pki/serving")
	}
	return errors.Join(errs...)
}

// CABundleConfig is the caBundle of an APIService and nothing else.
func CABundleConfig(name string, caBundle []byte) *apiregistrationv1ac.APIServiceApplyConfiguration {
	return apiregistrationv1ac.APIService(name).WithSpec(apiregistrationv1ac.APIServiceSpec().WithCABundle(caBundle...))
}

// CABundles returns one document for each APIService, by name, that holds nothing but the caBundle: to be applied on the
// server's side to an APIService that is there, or used as a patch of kustomize. For one that is not there the server
// refuses it, since group and version are missing.
func CABundles(opts CABundleOptions) ([]byte, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	from := opts.From
	if info, err := os.Stat(from); err == nil && info.IsDir() {
		from = filepath.Join(from, certs.BundleFile)
	}
	bundle, err := ReadBundle(from, opts.Now)
	if err != nil {
		return nil, err
	}
	var all []*apiregistrationv1ac.APIServiceApplyConfiguration
	names := slices.Compact(slices.Sorted(slices.Values(opts.APIServices)))
	for _, name := range names {
		all = append(all, CABundleConfig(name, bundle.PEM()))
	}
	return encode(all...)
}

// ReadBundle reads from a file what peers may trust: CAs only, sorted, none twice, none that has expired.
func ReadBundle(path string, now time.Time) (certs.Bundle, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read CAs: %w", err)
	}
	return ParseCAs(data, path, now)
}

// ParseCAs is ReadBundle for what was read from path.
func ParseCAs(data []byte, path string, now time.Time) (certs.Bundle, error) {
	all, err := certs.ParseBundle(data)
	if err != nil {
		return nil, &certs.RefusedError{Path: path, Reason: err.Error()}
	}
	for _, cert := range all {
		if !cert.IsCA {
			return nil, &certs.RefusedError{Path: path, Reason: fmt.Sprintf("expected CAs only, found %s; take the file of the CA that signed it", cert.Subject)}
		}
	}
	bundle := all.Merge(now)
	if len(bundle) == 0 {
		return nil, &certs.RefusedError{Path: path, Reason: "expected a CA that is valid, found only expired ones; make a new one: certgen init"}
	}
	return bundle, nil
}
