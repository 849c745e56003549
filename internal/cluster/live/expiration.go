// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/frontproxy"
)

// Fixes for certificates that are due, by location.
const (
	fixServing   = "renew it: certgen renew, or certgen rotate serving"
	fixServingCA = "rotate it: certgen rotate serving-ca"
	fixProxyCA   = "rotate it: certgen rotate front-proxy-ca, if certgen issued the front proxy's certificates"
	fixClientCA  = "add the new CA to kube-apiserver's --client-ca-file, and issue new certificates to its users"
)

// Expirations reports when certificates expire: those that the endpoints of the Service serve
// and the Secret stores, and the CAs in the caBundles of APIServices, in the Secret's ca.crt,
// and in the trust ConfigMap's keys for the front proxy and for users. It reads them as Check
// does and ignores Dir and ProxyClient. An unreadable certificate has the state error. An
// endpoint that is not ready and does not respond is skipped: its process reads its certificate
// when it starts.
func Expirations(ctx context.Context, c *cluster.Cluster, o Options,
	e verify.ExpirationOptions) (*verify.ExpirationReport, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	seen, err := observeCertificates(ctx, c, Options{Service: o.Service, Secret: o.Secret})
	if err != nil {
		return nil, err
	}
	e.Now = seen.now
	return verify.ExpirationsOf(seen.held(), e), nil
}

// unreadable lists the checks whose findings mean that something could not be read.
var unreadable = []string{"K02", "K12", "P04"}

func (o *observed) held() []verify.Held {
	var out []verify.Held
	for _, s := range o.leaves() {
		out = append(out, verify.Held{Source: "endpoint", Object: endpointObject(s.Endpoint), Serving: s.Leaf,
			Fix: fixServing})
	}
	for _, s := range o.stored {
		out = append(out,
			verify.Held{Source: "Secret", Object: s.object, Serving: s.chain[0], Fix: fixServing},
			verify.Held{Source: "Secret", Object: s.object + " ca.crt", Trusted: s.bundle, Fix: fixServingCA})
	}
	for _, a := range o.apiServices {
		out = append(out, verify.Held{Source: "APIService", Object: apiServiceObject(a),
			Trusted: certs.LenientBundle(a.Spec.CABundle), Fix: cmp.Or(fixInjected(a), fixServingCA)})
	}
	if o.trust != nil {
		for _, key := range []struct{ name, fix string }{{frontproxy.CAKey, fixProxyCA},
			{frontproxy.ClientCAKey, fixClientCA}} {
			out = append(out, verify.Held{
				Source: "ConfigMap", Object: cluster.TrustObject + " " + key.name,
				Trusted: certs.LenientBundle([]byte(o.trust.Data[key.name])), Fix: key.fix,
			})
		}
	}
	return append(out, o.problems()...)
}

func (o *observed) problems() []verify.Held {
	reading := slices.DeleteFunc(slices.Clone(checks), func(c catalogue.Check[*observed]) bool {
		return !slices.Contains(unreadable, c.ID)
	})
	var out []verify.Held
	for _, f := range catalogue.Sort(catalogue.Run(reading, o, o.serviceObject())) {
		notReady := slices.ContainsFunc(o.endpoints, func(e cluster.Endpoint) bool {
			return endpointObject(e) == f.Object && !e.Ready
		})
		if f.ID == "K02" && f.Severity == catalogue.Warning || notReady {
			continue // it was read; an endpoint that is not ready may be missing
		}
		source, _, _ := strings.Cut(f.Object, " ")
		out = append(out, verify.Held{Source: source, Object: f.Object, Problems: []catalogue.Finding{f}})
	}
	return out
}
