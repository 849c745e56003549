// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"slices"

	certutil "k8s.io/client-go/util/cert"

	"example.com/extension-apiserver/pkg/certs/verify"
)

// The keys of the trust ConfigMap.
const (
	keyClientCA     = "client-ca-file"
	keyFrontProxyCA = "requestheader-client-ca-file"
	keyAllowedNames = "requestheader-allowed-names"
)

// allowedNames are whom the front proxy may call itself; ok is false when nobody can tell.
func (o *observed) allowedNames() (names []string, ok bool) {
	if o.trust == nil {
		return nil, false
	}
	return names, json.Unmarshal([]byte(o.trust.Data[keyAllowedNames]), &names) == nil
}

func checkProxyName(o *observed) []verify.Finding {
	names, ok := o.allowedNames()
	if o.proxy == nil || !ok || len(names) == 0 || slices.Contains(names, o.proxy.Certificate.Subject.CommonName) {
		return nil
	}
	return []verify.Finding{{Object: o.proxyObject(), Evidence: fmt.Sprintf("common name %q, %s allows %q", o.proxy.Certificate.Subject.CommonName, trustObject, names)}}
}

func checkAllowedNames(o *observed) []verify.Finding {
	names, ok := o.allowedNames()
	if !ok || len(names) > 0 {
		return nil
	}
	f := verify.Finding{Object: trustObject, Severity: verify.Warning, Evidence: keyAllowedNames + " is empty"}
	if slices.ContainsFunc(checkTrustOverlap(o), func(f verify.Finding) bool { return f.Severity == verify.Error }) {
		f.Severity = verify.Error
		f.Evidence += ", and users have certificates of the front proxy's CA"
	}
	return []verify.Finding{f}
}

func checkTrustOverlap(o *observed) []verify.Finding {
	if o.trust == nil {
		return nil
	}
	users, proxies := lenient([]byte(o.trust.Data[keyClientCA])), lenient([]byte(o.trust.Data[keyFrontProxyCA]))
	var out []verify.Finding
	for _, proxy := range proxies {
		for _, user := range users {
			f := verify.Finding{Object: trustObject, Severity: verify.Error}
			switch {
			case proxy.Equal(user):
				f.Evidence = fmt.Sprintf("%s is in %s and in %s", proxy.Subject, keyClientCA, keyFrontProxyCA)
			case bytes.Equal(proxy.RawSubjectPublicKeyInfo, user.RawSubjectPublicKeyInfo):
				f.Evidence = fmt.Sprintf("%s in %s has the key of %s in %s", proxy.Subject, keyFrontProxyCA, user.Subject, keyClientCA)
			case bytes.Equal(proxy.RawSubject, user.RawSubject):
				f.Severity, f.Evidence = verify.Warning, fmt.Sprintf("two CAs are called %s, one in %s, one in %s", proxy.Subject, keyClientCA, keyFrontProxyCA)
			default:
				continue
			}
			out = append(out, f)
		}
	}
	return out
}

func checkTrustConfigMap(o *observed) []verify.Finding {
	found := func(format string, args ...any) []verify.Finding {
		return []verify.Finding{{Object: trustObject, Evidence: fmt.Sprintf(format, args...)}}
	}
	if o.trust == nil {
		return found("%v", o.trustErr)
	}
	var out []verify.Finding
	if o.trust.Data[keyFrontProxyCA] == "" {
		out = found("it has no %s", keyFrontProxyCA)
	} else if _, err := certutil.ParseCertsPEM([]byte(o.trust.Data[keyFrontProxyCA])); err != nil {
		out = found("client-go cannot read %s: %v", keyFrontProxyCA, err)
	} else if !slices.ContainsFunc(lenient([]byte(o.trust.Data[keyFrontProxyCA])), func(ca *x509.Certificate) bool { return o.now.Before(ca.NotAfter) }) {
		out = found("every CA in %s has expired", keyFrontProxyCA)
	}
	if _, ok := o.allowedNames(); !ok {
		out = append(out, found("%s is %q, expected a JSON list of names", keyAllowedNames, o.trust.Data[keyAllowedNames])...)
	}
	return out
}

// probeTexts say what the result of a probe means.
var probeTexts = map[ProbeResult]string{
	NotTrusted:   "it answered 401: it does not trust the CA of the certificate yet, or does not allow its common name",
	Anonymous:    "it took the front proxy for nobody: it verifies no front proxy, was started without the ConfigMap, or reads another header",
	AsUser:       "it took the front proxy for a user: its CA is among those of users",
	Inconclusive: "it answered neither 401 nor 403 with a user's name, so its authorizer hides what it believes",
}

func checkProbes(o *observed) []verify.Finding {
	var out []verify.Finding
	for _, p := range o.probes {
		f := verify.Finding{Object: endpointObject(p.endpoint), Evidence: probeTexts[p.result]}
		switch {
		case p.err != nil:
			f.Severity, f.Evidence = verify.Warning, p.err.Error()
		case p.result == Believed:
			continue
		case p.result == Inconclusive:
			f.Severity = verify.Warning
		}
		out = append(out, f)
	}
	return out
}
