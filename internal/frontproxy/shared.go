// SPDX-License-Identifier: Apache-2.0

package frontproxy

import (
	"crypto/x509"
	"fmt"

	"example.com/extension-apiserver/internal/frontproxy/sharedca"
)

// relations describes each pair of a front-proxy CA and a client CA of which one can stand in for
// the other. Every chain from a CA of one bundle to a CA of the other, through any CAs of both,
// has a link that crosses between the bundles, so checking pairs is enough.
//
// A CA in neither bundle is not visible. Two intermediates under one root therefore count as
// separate, which is correct. A client CA whose chain reaches the front-proxy CA only through an
// intermediate that users send also counts as separate, although it is not.
func relations(cas, clientCAs []*x509.Certificate) []string {
	var out []string
	for _, ca := range cas {
		for _, client := range clientCAs {
			if ca.Equal(client) {
				out = append(out, fmt.Sprintf("%s in %s is also in %s", ca.Subject, CAKey, ClientCAKey))
			} else if relation := sharedca.Relation(ca, client); relation != "" {
				out = append(out, fmt.Sprintf("%s in %s %s %s in %s", ca.Subject, CAKey, relation,
					client.Subject, ClientCAKey))
			}
		}
	}
	return out
}
