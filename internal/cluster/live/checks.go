// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/frontproxy"
)

func checkInsecure(o *observed) []catalogue.Finding {
	var out []catalogue.Finding
	for _, a := range o.apiServices {
		if a.Spec.InsecureSkipTLSVerify {
			out = append(out, catalogue.Finding{Object: apiServiceObject(a), Evidence: "insecureSkipTLSVerify is true"})
		}
	}
	return out
}

func checkCABundlePEM(o *observed) []catalogue.Finding {
	var out []catalogue.Finding
	for _, a := range o.apiServices {
		severity, evidence := parseCABundle(a.Spec.CABundle)
		if evidence == "" || a.Spec.InsecureSkipTLSVerify && len(a.Spec.CABundle) == 0 {
			continue
		}
		out = append(out, catalogue.Finding{Object: apiServiceObject(a), Severity: severity, Evidence: evidence,
			Fix: fixInjected(a)})
	}
	return out
}

// parseCABundle parses a caBundle as kube-aggregator does with AppendCertsFromPEM, as client-go
// reads CA files, and strictly.
func parseCABundle(data []byte) (catalogue.Severity, string) {
	_, clientGo := certutil.ParseCertsPEM(data)
	_, strict := certs.ParseBundle(data)
	text := bytes.TrimSpace(data)
	switch {
	case len(data) == 0:
		return catalogue.Error, "the caBundle is empty, so kube-apiserver trusts the CAs of its operating system"
	case len(text) == 0:
		return catalogue.Error, fmt.Sprintf("the caBundle is the placeholder %q, not a certificate", data)
	case len(certs.LenientBundle(data)) == 0 && base64Twice(text):
		return catalogue.Error, "the caBundle is PEM that is encoded in base64 twice"
	case len(certs.LenientBundle(data)) == 0:
		return catalogue.Error, fmt.Sprintf("the caBundle of %d bytes contains no certificate", len(data))
	case clientGo != nil:
		return catalogue.Error, fmt.Sprintf(
			"crypto/x509 reads %d certificates from the caBundle, client-go refuses the whole caBundle: %v",
			len(certs.LenientBundle(data)), clientGo)
	case strict != nil:
		return catalogue.Warning, strict.Error()
	}
	return "", ""
}

func base64Twice(text []byte) bool {
	decoded, err := base64.StdEncoding.DecodeString(string(bytes.ReplaceAll(text, []byte("\n"), nil)))
	return err == nil && bytes.Contains(decoded, []byte("-----BEGIN "))
}

func checkServed(o *observed) []catalogue.Finding {
	var out []catalogue.Finding
	for _, a := range o.apiServices {
		if a.Spec.InsecureSkipTLSVerify || len(certs.LenientBundle(a.Spec.CABundle)) == 0 {
			continue // reported by K01 and K02
		}
		for _, s := range o.served[a.Name] {
			if s.Leaf == nil || s.Err == nil {
				continue
			}
			f := catalogue.Finding{Object: endpointObject(s.Endpoint),
				Evidence: fmt.Sprintf("caBundle of %s: %v; the endpoint serves %s", a.Name, s.Err, leafText(s)),
				Fix:      fixInjected(a)}
			if !s.Endpoint.Ready {
				f.Severity = catalogue.Warning
			}
			out = append(out, f)
		}
	}
	return out
}

// fixInjected returns the fix for an APIService on which certgen apply would be reverted. It
// returns "" if no injector maintains the caBundle.
func fixInjected(a apiregistrationv1.APIService) string {
	injected := cluster.InjectedBy(a)
	if injected == nil {
		return ""
	}
	return injected.Injector + " owns the caBundle (annotation " + injected.Owner +
		"): correct the source that it injects, and wait for it"
}

func leafText(s cluster.Served) string {
	return fmt.Sprintf("%s, issued by %s, sha256 %s", s.Leaf.Subject, s.Leaf.Issuer, certs.Fingerprint(s.Leaf))
}

func checkForeignCAs(o *observed) []catalogue.Finding {
	var known certs.Bundle
	var names []string
	for _, s := range o.stored {
		known, names = append(known, s.bundle...), append(names, s.object)
	}
	var out []catalogue.Finding
	for _, a := range o.apiServices {
		for _, cert := range certs.LenientBundle(a.Spec.CABundle) {
			why := ""
			switch {
			case o.now.After(cert.NotAfter):
				why = "expired at " + cert.NotAfter.UTC().Format(time.RFC3339)
			case o.now.Before(cert.NotBefore):
				why = "not valid before " + cert.NotBefore.UTC().Format(time.RFC3339)
			case !cert.IsCA:
				why = "is not a CA"
			case len(known) > 0 && !known.Contains(cert):
				why = "is not in the ca.crt of " + strings.Join(names, " and ")
			default:
				continue
			}
			out = append(out, catalogue.Finding{Object: apiServiceObject(a),
				Evidence: fmt.Sprintf("%s (sha256 %s) %s", cert.Subject, certs.Fingerprint(cert), why),
				Fix:      fixInjected(a)})
		}
	}
	return out
}

// leaves returns the results of endpoints that serve a certificate. They do not depend on the
// trusted CAs.
func (o *observed) leaves() []cluster.Served {
	return slices.DeleteFunc(slices.Clone(o.served[o.apiServices[0].Name]),
		func(s cluster.Served) bool { return s.Leaf == nil })
}

func checkSameLeaf(o *observed) []catalogue.Finding {
	leaves := o.leaves()
	for _, s := range leaves {
		if !s.Leaf.Equal(leaves[0].Leaf) {
			return []catalogue.Finding{{Evidence: fmt.Sprintf("%s serves %s, %s serves %s",
				leaves[0].Endpoint.Address, leafText(leaves[0]), s.Endpoint.Address, leafText(s))}}
		}
	}
	return nil
}

func checkReloaded(o *observed) []catalogue.Finding {
	var out []catalogue.Finding
	for _, s := range o.leaves() {
		for _, want := range o.stored {
			if !s.Leaf.Equal(want.chain[0]) {
				out = append(out, catalogue.Finding{Object: endpointObject(s.Endpoint),
					Evidence: fmt.Sprintf("serves %s; %s contains sha256 %s",
						leafText(s), want.object, certs.Fingerprint(want.chain[0]))})
			}
		}
	}
	return out
}

// checkMounts checks the mounts of the named Secret. If none was named, it checks all mounts of
// individual files of a key pair.
func checkMounts(o *observed) []catalogue.Finding {
	var out []catalogue.Finding
	if o.secret != nil && o.secret.Immutable != nil && *o.secret.Immutable {
		out = append(out, catalogue.Finding{Object: "Secret " + o.secret.Namespace + "/" + o.secret.Name,
			Evidence: "the Secret is immutable"})
	}
	for _, pod := range o.pods {
		for _, container := range pod.Spec.Containers {
			for _, mount := range container.VolumeMounts {
				if name := o.secretBehind(pod, mount); name != "" && mount.SubPath+mount.SubPathExpr != "" {
					out = append(out, catalogue.Finding{Object: "Pod " + pod.Namespace + "/" + pod.Name,
						Evidence: fmt.Sprintf("container %s mounts the Secret %s at %s by subPath", container.Name,
							name, mount.MountPath)})
				}
			}
		}
	}
	return out
}

func (o *observed) secretBehind(pod corev1.Pod, mount corev1.VolumeMount) string {
	for _, v := range pod.Spec.Volumes {
		if v.Name != mount.Name || v.Secret == nil {
			continue
		}
		if o.secret != nil && v.Secret.SecretName == o.secret.Name || o.secret == nil &&
			slices.Contains([]string{certs.CertFile, certs.KeyFile}, mount.SubPath) {
			return v.Secret.SecretName
		}
	}
	return ""
}

func checkResponses(o *observed) []catalogue.Finding {
	var out []catalogue.Finding
	failed := map[string]bool{}
	for _, a := range o.responses {
		status, _ := errors.AsType[*cluster.StatusError](a.err)
		switch {
		// it responded to an unprivileged user
		case a.err == nil || status != nil && status.Status == http.StatusForbidden:
		case status == nil:
			out = append(out, catalogue.Finding{Object: "kube-apiserver " + a.kubeAPIServer, Severity: catalogue.Info,
				Evidence: a.err.Error(),
				Fix:      "run certgen where it can reach kube-apiserver, or name URLs with --kube-apiserver"})
		default:
			failed[a.apiService.Name] = true
			out = append(out, catalogue.Finding{Object: apiServiceObject(a.apiService),
				Evidence: fmt.Sprintf("%v, while the condition Available is %s", a.err,
					available(a.apiService).Status)})
		}
	}
	for _, a := range o.apiServices {
		c, text := available(a), "missing"
		if c.Type != "" {
			text = fmt.Sprintf("%s (%s: %s)", c.Status, c.Reason, c.Message)
		}
		if c.Status != apiregistrationv1.ConditionTrue && !failed[a.Name] {
			out = append(out, catalogue.Finding{Object: apiServiceObject(a),
				Evidence: "the condition Available is " + text})
		}
	}
	return out
}

func checkReached(o *observed) []catalogue.Finding {
	if len(o.endpoints) == 0 {
		return []catalogue.Finding{{Evidence: fmt.Sprintf("the Service has no endpoints at the ports %v",
			cluster.BackendPorts(o.apiServices))}}
	}
	var out []catalogue.Finding
	for _, s := range o.served[o.apiServices[0].Name] {
		if s.Leaf == nil {
			out = append(out, catalogue.Finding{Object: endpointObject(s.Endpoint), Severity: catalogue.Warning,
				Evidence: fmt.Sprint(s.Err)})
		}
	}
	return out
}

// trustProblems returns the problems of the trust ConfigMap with the given weakness. An empty
// weakness selects those that cannot be tolerated.
func (o *observed) trustProblems(weakness string) []catalogue.Finding {
	var out []catalogue.Finding
	for _, p := range frontproxy.Evaluate(o.trust).Problems {
		if p.Weakness == weakness {
			out = append(out, catalogue.Finding{Object: cluster.TrustObject, Severity: catalogue.Error,
				Evidence: "the ConfigMap " + p.Text})
		}
	}
	return out
}

func checkProxyName(o *observed) []catalogue.Finding {
	names := frontproxy.Evaluate(o.trust).AllowedNames
	if o.proxy == nil || frontproxy.AllowsName(names, o.proxy.Certificate.Subject.CommonName) {
		return nil
	}
	return []catalogue.Finding{{Object: o.proxyObject(), Evidence: fmt.Sprintf("common name %q; %s allows %q",
		o.proxy.Certificate.Subject.CommonName, cluster.TrustObject, names)}}
}

func checkAllowedNames(o *observed) []catalogue.Finding {
	out := o.trustProblems(frontproxy.AnyName)
	shared := len(o.trustProblems(frontproxy.SharedCA)) > 0
	for i := range out {
		if shared {
			out[i].Evidence += ", and the front proxy's CA also signs users"
		} else {
			out[i].Severity = catalogue.Warning
		}
	}
	return out
}

func checkTrustOverlap(o *observed) []catalogue.Finding {
	out, trust := o.trustProblems(frontproxy.SharedCA), frontproxy.Evaluate(o.trust)
	for _, proxy := range trust.CAs {
		for _, user := range trust.ClientCAs {
			if bytes.Equal(proxy.RawSubject, user.RawSubject) &&
				!bytes.Equal(proxy.RawSubjectPublicKeyInfo, user.RawSubjectPublicKeyInfo) {
				out = append(out, catalogue.Finding{Object: cluster.TrustObject, Severity: catalogue.Warning,
					Evidence: fmt.Sprintf("two CAs have the subject %s, one in %s, one in %s", proxy.Subject,
						frontproxy.ClientCAKey, frontproxy.CAKey)})
			}
		}
	}
	return out
}

func checkTrustConfigMap(o *observed) []catalogue.Finding {
	if o.trust == nil {
		return []catalogue.Finding{{Object: cluster.TrustObject, Evidence: fmt.Sprint(o.trustErr)}}
	}
	out, cas := o.trustProblems(""), frontproxy.Evaluate(o.trust).CAs
	if len(cas) > 0 && !slices.ContainsFunc(cas, func(ca *x509.Certificate) bool { return o.now.Before(ca.NotAfter) }) {
		out = append(out, catalogue.Finding{Object: cluster.TrustObject,
			Evidence: fmt.Sprintf("every CA in %s has expired", frontproxy.CAKey)})
	}
	return out
}

// probeTexts explains the results of a probe.
var probeTexts = map[cluster.ProbeResult]string{
	cluster.NotTrusted: "the endpoint responded with 401: it does not trust the CA of the certificate yet, or does not " +
		"allow its common name",
	cluster.Anonymous: "the endpoint treated the front proxy as anonymous: it does not verify front proxies, was " +
		"started without the ConfigMap, or reads another header",
	cluster.AsUser: "the endpoint treated the front proxy as a user: the CAs of users include its CA",
	cluster.Inconclusive: "the endpoint responded with neither 401 nor a 403 that names a user, so certgen " +
		"cannot tell which user it authenticated",
}

func checkProbes(o *observed) []catalogue.Finding {
	var out []catalogue.Finding
	for _, p := range o.probes {
		f := catalogue.Finding{Object: endpointObject(p.endpoint), Evidence: probeTexts[p.result]}
		switch {
		case p.err != nil:
			f.Severity, f.Evidence = catalogue.Warning, p.err.Error()
		case p.result == cluster.Accepted:
			continue
		case p.result == cluster.Inconclusive:
			f.Severity = catalogue.Warning
		}
		out = append(out, f)
	}
	return out
}
