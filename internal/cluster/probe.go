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

// ProbeResult says what an endpoint takes the holder of a front proxy's certificate for.
type ProbeResult string

// The results of a probe.
const (
	Accepted   ProbeResult = "Accepted"   // it accepts which user the front proxy names
	NotTrusted ProbeResult = "NotTrusted" // 401: it does not trust the CA, or does not allow the common name
	// it sees neither front proxy nor user: it verifies no front proxy, or reads other headers
	Anonymous ProbeResult = "Anonymous"
	AsUser    ProbeResult = "AsUser" // it takes the front proxy for a user: its CA is among those of users
	// Inconclusive: it answered the probe's path with something else than 401 or 403, so it asks another authorizer.
	Inconclusive ProbeResult = "Inconclusive"
)

// ProbeFrontProxy asks an endpoint, as kube-apiserver would with the given certificate, for a path that does not exist
// in the name of a user that nobody knows. The answer tells what the certificate is worth there. Trust stands in the
// place of the caBundle. The header is X-Remote-User, whatever the ConfigMap says. An error means that there was no
// answer.
func (c *Cluster) ProbeFrontProxy(ctx context.Context, e Endpoint, s certs.Service, trust certs.Bundle,
	proxy *certs.KeyPair) (ProbeResult, error) {
	nonce := rand.Text()
	user := "certgen-probe-" + nonce
	config := c.tlsConfig(s, trust)
	pair := tls.Certificate{Certificate: [][]byte{proxy.Certificate.Raw}, PrivateKey: proxy.Key,
		Leaf: proxy.Certificate}
	// Certificates would be left out when the server does not list their CA; kube-aggregator sends its own always.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	response, err := c.request(ctx, e, s, "/certgen-probe-"+nonce, http.Header{"X-Remote-User": {user}}, config)
	if err != nil {
		return "", fmt.Errorf("probe %s: %w", e.Address, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10)) // a Status has less
	if err != nil {
		return "", fmt.Errorf("probe %s: read response: %w", e.Address, err)
	}
	return probeResultOf(response.StatusCode, body, user, proxy.Certificate.Subject.CommonName), nil
}

// probeResultOf reads the words of k8s.io/apiserver: User "NAME" cannot get path "PATH".
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
