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
		"Weaknesses of the front proxy's trust to accept: "+strings.Join(frontproxy.Weaknesses, ", ")+
			". By default, the server does not start if the trust is weak, and rejects all front-proxy identities if "+
			"it becomes weak.")
	fs.BoolVar(&o.BearerTokens, "authentication-bearer-tokens", o.BearerTokens,
		"Review bearer tokens that clients send directly to this server. Requests through kube-apiserver need none. "+
			"Direct requests bypass kube-apiserver's audit log and flow control.")
	fs.StringSliceVar(&o.Audiences, "api-audiences", o.Audiences,
		"Accepted audiences of bearer tokens. A token needs one of them. The default is the audiences of kube-apiserver.")
}

func (o *TrustOptions) validate() []error {
	var errs []error
	for _, weakness := range o.Tolerate {
		if !slices.Contains(frontproxy.Weaknesses, weakness) {
			errs = append(errs, fmt.Errorf("--front-proxy-tolerate is %q: must be %s", weakness,
				strings.Join(frontproxy.Weaknesses, " or ")))
		}
	}
	return errs
}

func (o *TrustOptions) tolerated() sets.Set[string] { return sets.New(o.Tolerate...) }
