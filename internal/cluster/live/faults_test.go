// SPDX-License-Identifier: Apache-2.0

package live

import (
	"crypto/x509"
	"encoding/base64"
	"errors"
	"strings"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/clustertest"
	"example.com/extension-apiserver/internal/frontproxy"
)

// faults contains faults for each ID that cause its finding.
var faults = []struct {
	id       string
	severity catalogue.Severity
	object   string
	evidence string
	fault    func(f *fixture)
}{
	{"K01", catalogue.Warning, "APIService v1.g.example.com", "insecureSkipTLSVerify is true", func(f *fixture) {
		f.apiServices[0].Spec.InsecureSkipTLSVerify = true
		f.bundle("")
	}},
	{"K02", catalogue.Error, "APIService v1.g.example.com", "the caBundle is empty", func(f *fixture) { f.bundle("") }},
	{"K02", catalogue.Error, "APIService v1.g.example.com", `the caBundle is the placeholder "\n"`,
		func(f *fixture) { f.bundle("\n") }},
	{"K02", catalogue.Error, "APIService v1.g.example.com", "base64 twice",
		func(f *fixture) { f.bundle(base64.StdEncoding.EncodeToString(f.servingCA.CertPEM)) }},
	{"K02", catalogue.Error, "APIService v1.g.example.com", "the caBundle of 4 bytes contains no certificate",
		func(f *fixture) { f.bundle("none") }},
	{"K02", catalogue.Error, "APIService v1.g.example.com",
		"crypto/x509 reads 1 certificates from the caBundle, client-go refuses the whole caBundle", func(f *fixture) {
			f.bundle(string(f.servingCA.CertPEM) + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
		}},
	{"K02", catalogue.Warning, "APIService v1.g.example.com", "text after the last PEM block",
		func(f *fixture) { f.bundle(string(f.servingCA.CertPEM) + "the end") }},
	{"K02", catalogue.Warning, "APIService v1.g.example.com", "certificate 2 in a block with headers", func(f *fixture) {
		f.bundle(string(f.servingCA.CertPEM) + strings.Replace(string(f.servingCA.CertPEM), "-----\n",
			"-----\nComment: x\n\n", 1))
	}},
	{"K03", catalogue.Error, "endpoint 10.0.0.2:6443",
		"caBundle of v2.g.example.com: x509: certificate signed by unknown authority", func(f *fixture) {
			f.served["v2.g.example.com"][1].Err = x509.UnknownAuthorityError{}
		}},
	{"K03", catalogue.Warning, "endpoint 10.0.0.2:6443", "unknown authority", func(f *fixture) {
		f.served["v2.g.example.com"][1].Err = x509.UnknownAuthorityError{}
		f.served["v2.g.example.com"][1].Endpoint.Ready = false
	}},
	{"K04", catalogue.Warning, "APIService v1.g.example.com", "is not in the ca.crt of pki/serving", func(f *fixture) {
		f.bundle(string(f.servingCA.CertPEM) + string(clustertest.NewCA(f.t, "other-ca",
			x509.ExtKeyUsageServerAuth).CertPEM))
	}},
	{"K04", catalogue.Warning, "APIService v1.g.example.com", "is not a CA",
		func(f *fixture) { f.bundle(string(f.servingCA.CertPEM) + string(f.leaf.CertPEM)) }},
	{"K04", catalogue.Warning, "APIService v1.g.example.com", "expired at 2031-",
		func(f *fixture) { f.now = clustertest.Now.Add(certs.CALifetime + time.Hour) }},
	{"K05", catalogue.Info, "Service demo/widgets", "10.0.0.1:6443 serves CN=widgets.demo.svc", func(f *fixture) {
		f.served["v1.g.example.com"][1].Leaf = clustertest.NewServing(f.t, f.servingCA, "widgets.demo.svc").Certificate
	}},
	{"K06", catalogue.Error, "endpoint 10.0.0.1:6443", "pki/serving contains sha256 ", func(f *fixture) {
		f.stored[0].chain = certs.Bundle{clustertest.NewServing(f.t, f.servingCA, "widgets.demo.svc").Certificate}
	}},
	{"K07", catalogue.Error, "Pod demo/widgets-1", "container server mounts the Secret serving at /pki/tls.crt by subPath",
		func(f *fixture) {
			f.pods[0] = podWithSecret("serving", "x.crt")
		}},
	{"K07", catalogue.Error, "Pod demo/widgets-1", "mounts the Secret any", func(f *fixture) {
		f.secret, f.pods[0] = nil, podWithSecret("any", "tls.crt")
	}},
	{"K07", catalogue.Error, "Secret demo/serving", "the Secret is immutable",
		func(f *fixture) { yes := true; f.secret.Immutable = &yes }},
	{"K08", catalogue.Error, "APIService v2.g.example.com", "503 no route, while the condition Available is True",
		func(f *fixture) {
			f.responses[1].err = &cluster.StatusError{URL: "https://10.0.0.9:6443/apis/g.example.com/v2", Status: 503,
				Text: "no route"}
		}},
	{"K08", catalogue.Error, "APIService v1.g.example.com", "the condition Available is False (FailedDiscoveryCheck: x)",
		func(f *fixture) {
			f.apiServices[0].Status.Conditions[0] = apiregistrationv1.APIServiceCondition{
				Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse,
				Reason: "FailedDiscoveryCheck", Message: "x",
			}
		}},
	{"K08", catalogue.Info, "kube-apiserver https://10.0.0.9:6443", "no route to host",
		func(f *fixture) { f.responses[1].err = errors.New("no route to host") }},
	{"K12", catalogue.Error, "Service demo/widgets", "the Service has no endpoints at the ports [443]", func(f *fixture) {
		f.endpoints, f.probes, f.served = nil, nil, map[string][]cluster.Served{}
	}},
	{"K12", catalogue.Warning, "endpoint 10.0.0.2:6443", "connection refused", func(f *fixture) {
		for _, served := range f.served {
			served[1] = cluster.Served{Endpoint: served[1].Endpoint, Err: errors.New("connection refused")}
		}
	}},
	{"P01", catalogue.Error, "front proxy CN=mallory",
		`common name "mallory"; ConfigMap kube-system/extension-apiserver-authentication allows ["front-proxy-client"]`,
		func(f *fixture) {
			f.proxy = clustertest.NewProxy(f.t, f.fpc, "mallory")
		}},
	{"P02", catalogue.Warning, cluster.TrustObject, "the ConfigMap has an empty requestheader-allowed-names",
		func(f *fixture) { f.trust.Data[frontproxy.AllowedNamesKey] = "[]" }},
	{"P02", catalogue.Error, cluster.TrustObject, "can name any user, and the front proxy's CA also signs users",
		func(f *fixture) {
			f.trust.Data[frontproxy.AllowedNamesKey], f.trust.Data[frontproxy.ClientCAKey] = "[]", string(f.fpc.CertPEM)
		}},
	{"P03", catalogue.Error, cluster.TrustObject, "in requestheader-client-ca-file is also in client-ca-file",
		func(f *fixture) {
			f.trust.Data[frontproxy.ClientCAKey] += string(f.fpc.CertPEM)
		}},
	{"P03", catalogue.Error, cluster.TrustObject, "has the key of", func(f *fixture) {
		f.trust.Data[frontproxy.ClientCAKey] = string(clustertest.RenamedPEM(f.t, f.fpc, "another name"))
	}},
	{"P03", catalogue.Error, cluster.TrustObject, "in requestheader-client-ca-file signed CN=users-ca@", func(f *fixture) {
		f.trust.Data[frontproxy.ClientCAKey] = string(clustertest.SignedPEM(f.t, f.users, f.fpc))
	}},
	{"P03", catalogue.Warning, cluster.TrustObject, "two CAs have the subject", func(f *fixture) {
		another := clustertest.NewCA(f.t, "x", x509.ExtKeyUsageClientAuth)
		f.trust.Data[frontproxy.ClientCAKey] = string(clustertest.RenamedPEM(f.t, another,
			f.fpc.Certificate.Subject.CommonName))
	}},
	{"P04", catalogue.Error, cluster.TrustObject, "not found",
		func(f *fixture) { f.trust, f.trustErr = nil, errors.New("not found") }},
	{"P04", catalogue.Error, cluster.TrustObject, "the ConfigMap has no requestheader-client-ca-file",
		func(f *fixture) { delete(f.trust.Data, frontproxy.CAKey) }},
	{"P04", catalogue.Error, cluster.TrustObject, "the ConfigMap has a malformed requestheader-client-ca-file",
		func(f *fixture) { f.trust.Data[frontproxy.CAKey] = "none" }},
	{"P04", catalogue.Error, cluster.TrustObject, "every CA in requestheader-client-ca-file has expired",
		func(f *fixture) { f.now = clustertest.Now.Add(certs.CALifetime + time.Hour) }},
	{"P04", catalogue.Error, cluster.TrustObject,
		"the ConfigMap has a malformed requestheader-allowed-names: expected a list of strings in JSON",
		func(f *fixture) { f.trust.Data[frontproxy.AllowedNamesKey] = "x" }},
	{"P04", catalogue.Error, cluster.TrustObject, "the ConfigMap names no header in requestheader-username-headers",
		func(f *fixture) {
			delete(f.trust.Data, frontproxy.UsernameHeadersKey)
		}},
	{"P04", catalogue.Error, cluster.TrustObject, "the ConfigMap has a malformed requestheader-group-headers",
		func(f *fixture) { f.trust.Data[frontproxy.GroupHeadersKey] = `["typo` }},
	{"P11", catalogue.Error, "endpoint 10.0.0.2:6443", "the endpoint responded with 401",
		func(f *fixture) { f.probes[1].result = cluster.NotTrusted }},
	{"P11", catalogue.Error, "endpoint 10.0.0.2:6443", "as anonymous",
		func(f *fixture) { f.probes[1].result = cluster.Anonymous }},
	{"P11", catalogue.Error, "endpoint 10.0.0.2:6443", "as a user",
		func(f *fixture) { f.probes[1].result = cluster.AsUser }},
	{"P11", catalogue.Warning, "endpoint 10.0.0.2:6443", "neither 401 nor a 403",
		func(f *fixture) { f.probes[1].result = cluster.Inconclusive }},
	{"P11", catalogue.Warning, "endpoint 10.0.0.2:6443", "no answer",
		func(f *fixture) { f.probes[1] = probe{f.endpoints[1], "", errors.New("no answer")} }},
}
