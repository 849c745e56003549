// SPDX-License-Identifier: Apache-2.0

package frontproxy

import (
	"crypto/x509"
	"fmt"

	"example.com/extension-apiserver/internal/frontproxy/sharedca"
)

// relations describes each pair of a CA of the front proxy and a CA of users of which one can stand
// in for the other. Every chain from a CA of one bundle to a CA of the other, through whatever CAs of
// both, has a link that crosses between the bundles, so looking at pairs is enough.
//
// A CA in neither bundle stays unseen: two intermediates under one root are separate, and rightly so,
// but a users' CA whose chain reaches the front proxy's only through an intermediate that users send
// along passes for separate too.
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
