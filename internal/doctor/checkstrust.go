// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/frontproxy"
)

const trustObject = "ConfigMap " + frontproxy.Namespace + "/" + frontproxy.ConfigMapName

// trustIDs are the IDs of findings by the weakness of the trust ConfigMap.
var trustIDs = map[string]string{frontproxy.AnyName: "P02", frontproxy.SharedCA: "P03", "": "P04"}

func checkTrust(f *Facts) []Finding {
	if f.Trust == nil && !f.TrustNotFound {
		return nil
	}
	var out []Finding
	for _, p := range frontproxy.Evaluate(f.Trust).Problems {
		out = append(out, newFinding(trustIDs[p.Weakness], trustObject, nil, nil, "the ConfigMap "+p.Text))
	}
	return out
}

// checkHeaders compares the published header names with those that kube-aggregator sends whatever
// the flags of kube-apiserver are: k8s.io/client-go/transport.SetAuthProxyHeaders.
func checkHeaders(f *Facts) []Finding {
	if f.Trust == nil {
		return nil
	}
	trust := frontproxy.Evaluate(f.Trust)
	var out []Finding
	for _, header := range []struct {
		key, sent string
		published []string
	}{
		{frontproxy.UsernameHeadersKey, "X-Remote-User", trust.UsernameHeaders},
		{frontproxy.GroupHeadersKey, "X-Remote-Group", trust.GroupHeaders},
		{frontproxy.ExtraHeaderPrefixesKey, "X-Remote-Extra-", trust.ExtraHeaderPrefixes},
	} {
		if len(header.published) > 0 && !slices.ContainsFunc(header.published, func(name string) bool {
			return strings.EqualFold(name, header.sent)
		}) {
			out = append(out, newFinding("P05", trustObject, nil, nil, fmt.Sprintf("%s is %q, and kube-apiserver sends %s",
				header.key, header.published, header.sent)))
		}
	}
	return out
}

func checkProxyCAs(f *Facts) []Finding {
	if f.Trust == nil {
		return nil
	}
	var all []string
	invalid, soon := true, true
	cas := frontproxy.Evaluate(f.Trust).CAs
	for _, ca := range cas {
		all = append(all, validity(ca))
		invalid = invalid && !validAt(ca, f.Now)
		soon = soon && verify.Due(ca, f.Now, 0)
	}
	switch evidence := strings.Join(all, "; "); {
	case len(cas) == 0:
		return nil
	case invalid:
		return []Finding{newFinding("P06", trustObject, nil, nil, evidence)}
	case soon:
		return []Finding{newFinding("P07", trustObject, nil, nil, evidence)}
	}
	return nil
}

func validAt(certificate *x509.Certificate, at time.Time) bool {
	return !at.Before(certificate.NotBefore) && !at.After(certificate.NotAfter)
}

func validity(certificate *x509.Certificate) string {
	return fmt.Sprintf("%s is valid from %s until %s", certificate.Subject,
		certificate.NotBefore.UTC().Format(time.RFC3339), certificate.NotAfter.UTC().Format(time.RFC3339))
}

// checkProxyCertificate reports a kube-apiserver that proxies requests without a certificate.
func checkProxyCertificate(f *Facts) []Finding {
	const flag = "proxy-client-cert-file"
	if f.Flags == nil || f.Flags[flag] != "" {
		return nil
	}
	return []Finding{newFinding("P08", "kube-apiserver", nil, nil, "kube-apiserver runs without --"+flag)}
}
