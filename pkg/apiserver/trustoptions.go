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

// TrustOptions say whom the server believes, beside what the library has flags for.
type TrustOptions struct {
	// Tolerate are weaknesses of the front proxy's trust with which the server accepts its identities all the same:
	// SharedCA and AnyName. Default: none.
	Tolerate []string
	// BearerTokens says whether tokens that are sent to the server's own port are reviewed. Default: true.
	BearerTokens bool
	// Audiences are those that such a token must have one of. Default: those of kube-apiserver.
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
