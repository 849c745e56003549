// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/internal/certs"
)

// ProbeResult is the identity that an endpoint gives to a client with a front-proxy certificate.
type ProbeResult string

// The results of a probe.
const (
	Accepted   ProbeResult = "Accepted"   // it accepts the user in the front proxy's header
	NotTrusted ProbeResult = "NotTrusted" // 401: it does not trust the CA, or does not allow the common name
	// Anonymous means that it recognizes neither the front proxy nor a user: it does not
	// authenticate a front proxy, or it reads other headers.
	Anonymous ProbeResult = "Anonymous"
	AsUser    ProbeResult = "AsUser" // it treats the front proxy as a user: its CA is among the users' CAs
	// Inconclusive means that the status is neither 401 nor 403, or that the response does not
	// name the user, so the endpoint may use another authorizer.
	Inconclusive ProbeResult = "Inconclusive"
)

// ProbeFrontProxy sends a request to an endpoint with the given certificate, as kube-apiserver
// would. It requests a nonexistent path as a nonexistent user; the response shows whether the
// endpoint accepts the certificate. trust is used instead of the caBundle. The header is
// X-Remote-User regardless of the ConfigMap. An error means that there was no response.
func (c *Cluster) ProbeFrontProxy(ctx context.Context, e Endpoint, s certs.Service, trust certs.Bundle,
	proxy *certs.KeyPair) (ProbeResult, error) {
	nonce := rand.Text()
	user := "certgen-probe-" + nonce
	config := c.tlsConfig(s, trust)
	pair := tls.Certificate{Certificate: [][]byte{proxy.Certificate.Raw}, PrivateKey: proxy.Key,
		Leaf: proxy.Certificate}
	// By default, a client omits its certificate if the server does not list its CA.
	// kube-aggregator always sends its own.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	response, err := c.request(ctx, e, s, "/certgen-probe-"+nonce, http.Header{"X-Remote-User": {user}}, config)
	if err != nil {
		return "", fmt.Errorf("probe %s: %w", e.Address, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10)) // a Status is shorter
	if err != nil {
		return "", fmt.Errorf("probe %s: read response: %w", e.Address, err)
	}
	return probeResultOf(response.StatusCode, body, user, proxy.Certificate.Subject.CommonName), nil
}

// probeResultOf parses the message of k8s.io/apiserver: User "NAME" cannot get path "PATH".
func probeResultOf(status int, body []byte, user, commonName string) ProbeResult {
	switch status {
	case http.StatusUnauthorized:
		return NotTrusted
	case http.StatusForbidden:
		text := string(body)
		var s metav1.Status
		if err := json.Unmarshal(body, &s); err == nil {
			text = s.Message
		}
		for name, result := range map[string]ProbeResult{user: Accepted, "system:anonymous": Anonymous,
			commonName: AsUser} {
			if strings.Contains(text, fmt.Sprintf("User %q ", name)) {
				return result
			}
		}
	}
	return Inconclusive
}
