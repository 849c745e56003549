// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/sets"

	"example.com/extension-apiserver/internal/frontproxy"
)

// TrustOptions define which identities the server accepts, in addition to the library's flags.
type TrustOptions struct {
	// Tolerate lists weaknesses of the front-proxy trust that the server tolerates: SharedCA and
	// AnyName. With any other weakness it rejects all front-proxy identities. Default: none.
	Tolerate []string
	// BearerTokens enables TokenReviews for tokens that are sent to the server's own port.
	// Default: true.
	BearerTokens bool
	// Audiences are the accepted audiences; such a token must have one of them. Default: those of
	// kube-apiserver.
	Audiences []string
}

func (o *TrustOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.Tolerate, "front-proxy-tolerate", o.Tolerate,
		"Weaknesses of the front proxy's trust with which the server starts all the same: "+
			strings.Join(frontproxy.Weaknesses, ", ")+". Without this it rejects all front-proxy identities.")
	fs.BoolVar(&o.BearerTokens, "authentication-bearer-tokens", o.BearerTokens,
		"Review bearer tokens that are sent to this server's own port. "+
			"Requests through kube-apiserver need none; those past it miss its audit log and its flow control.")
	fs.StringSliceVar(&o.Audiences, "api-audiences", o.Audiences,
		"Audiences of which a bearer token must have one. Unset: those of kube-apiserver.")
}

func (o *TrustOptions) validate() []error {
	var errs []error
	for _, weakness := range o.Tolerate {
		if !slices.Contains(frontproxy.Weaknesses, weakness) {
			errs = append(errs, fmt.Errorf("--front-proxy-tolerate is %q, expected %s", weakness,
				strings.Join(frontproxy.Weaknesses, " or ")))
		}
	}
	return errs
}

func (o *TrustOptions) tolerated() sets.Set[string] { return sets.New(o.Tolerate...) }
