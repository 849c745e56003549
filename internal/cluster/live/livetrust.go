// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"slices"

	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/frontproxy"
)

// trustProblems returns those of the trust ConfigMap with the weakness, empty for those that cannot
// be tolerated.
func (o *observed) trustProblems(weakness string) []verify.Finding {
	var out []verify.Finding
	for _, p := range o.trustStatus().Problems {
		if p.Weakness == weakness {
			out = append(out, verify.Finding{Object: cluster.TrustObject, Severity: verify.Error, Evidence: "it " + p.Text})
		}
	}
	return out
}

// trustStatus is empty where there is no ConfigMap: checkTrustConfigMap says why.
func (o *observed) trustStatus() frontproxy.Status {
	if o.trust == nil {
		return frontproxy.Status{}
	}
	return frontproxy.Evaluate(o.trust)
}

func checkProxyName(o *observed) []verify.Finding {
	names := o.trustStatus().AllowedNames
	if o.proxy == nil || frontproxy.AllowsName(names, o.proxy.Certificate.Subject.CommonName) {
		return nil
	}
	return []verify.Finding{{Object: o.proxyObject(), Evidence: fmt.Sprintf("common name %q, %s allows %q", o.proxy.Certificate.Subject.CommonName, cluster.TrustObject, names)}}
}

func checkAllowedNames(o *observed) []verify.Finding {
	out := o.trustProblems(frontproxy.AnyName)
	shared := len(o.trustProblems(frontproxy.SharedCA)) > 0
	for i := range out {
		if shared {
			out[i].Evidence += ", and users have certificates of the front proxy's CA"
		} else {
			out[i].Severity = verify.Warning
		}
	}
	return out
}

func checkTrustOverlap(o *observed) []verify.Finding {
	out, trust := o.trustProblems(frontproxy.SharedCA), o.trustStatus()
	for _, proxy := range trust.CAs {
		for _, user := range trust.ClientCAs {
			if bytes.Equal(proxy.RawSubject, user.RawSubject) && !bytes.Equal(proxy.RawSubjectPublicKeyInfo, user.RawSubjectPublicKeyInfo) {
				out = append(out, verify.Finding{Object: cluster.TrustObject, Severity: verify.Warning,
					Evidence: fmt.Sprintf("two CAs are called %s, one in %s, one in %s", proxy.Subject, frontproxy.ClientCAKey, frontproxy.CAKey)})
			}
		}
	}
	return out
}

func checkTrustConfigMap(o *observed) []verify.Finding {
	if o.trust == nil {
		return []verify.Finding{{Object: cluster.TrustObject, Evidence: fmt.Sprint(o.trustErr)}}
	}
	out, cas := o.trustProblems(""), o.trustStatus().CAs
	if len(cas) > 0 && !slices.ContainsFunc(cas, func(ca *x509.Certificate) bool { return o.now.Before(ca.NotAfter) }) {
		out = append(out, verify.Finding{Object: cluster.TrustObject, Evidence: fmt.Sprintf("every CA in %s has expired", frontproxy.CAKey)})
	}
	return out
}

// probeTexts say what the result of a probe means.
var probeTexts = map[cluster.ProbeResult]string{
	cluster.NotTrusted:   "it answered 401: it does not trust the CA of the certificate yet, or does not allow its common name",
	cluster.Anonymous:    "it took the front proxy for nobody: it verifies no front proxy, was started without the ConfigMap, or reads another header",
	cluster.AsUser:       "it took the front proxy for a user: its CA is among those of users",
	cluster.Inconclusive: "it answered neither 401 nor 403 with a user's name, so its authorizer hides what it believes",
}

func checkProbes(o *observed) []verify.Finding {
	var out []verify.Finding
	for _, p := range o.probes {
		f := verify.Finding{Object: endpointObject(p.endpoint), Evidence: probeTexts[p.result]}
		switch {
		case p.err != nil:
			f.Severity, f.Evidence = verify.Warning, p.err.Error()
		case p.result == cluster.Believed:
			continue
		case p.result == cluster.Inconclusive:
			f.Severity = verify.Warning
		}
		out = append(out, f)
	}
	return out
}
