// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"errors"
	"net/http"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// certificates authenticates by the client certificate of the connection. It authenticates
// requests with the front proxy's certificate by their headers, and all others as the user of the
// certificate. The two never mix. If they share a CA, which may be tolerated, the front proxy
// would otherwise become a user itself when its headers are rejected.
type certificates struct {
	proxy          *verifiedProxy
	headers, users authenticator.Request
}

// AuthenticateRequest implements authenticator.Request.
func (c *certificates) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	isProxy, proxyErr := c.proxy.isFrontProxy(req)
	if isProxy {
		resp, ok, err := c.headers.AuthenticateRequest(req)
		if !ok && err == nil {
			err = errors.New("the request has the front proxy's certificate, but no user name header")
		}
		return resp, ok, err
	}
	resp, ok, err := c.users.AuthenticateRequest(req)
	if ok && err == nil {
		return resp, true, nil
	}
	return nil, false, utilerrors.NewAggregate([]error{proxyErr, err})
}
