// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"crypto/x509"
	"regexp"
	"slices"
	"strings"

	"example.com/extension-apiserver/internal/certs"
)

// Purpose is what a certificate is for, which decides who verifies it and how.
type Purpose string

// The purposes.
const (
	Serving    Purpose = "serving"     // of the API server; kube-aggregator verifies it
	Server     Purpose = "server"      // of another server
	FrontProxy Purpose = "front-proxy" // of kube-apiserver; the request-header authenticator verifies it
	Client     Purpose = "client"      // of another client
	Authority  Purpose = "CA"
	Any        Purpose = "any" // nothing says what for
	KeyOnly    Purpose = "key" // a key without a certificate
)

// known are the names of directories, and of files without their extension, that say what a certificate is for. A name
// that ends with "-ca" is a CA's.
var known = map[string]Purpose{
	certs.ServingDir:          Serving,
	certs.FrontProxyClientDir: FrontProxy,
	// The pairs of konnectivity: its server has one certificate for kube-apiserver and one for the agents.
	certs.KonnectivityServerDir:          Server,
	certs.KonnectivityAgentServerDir:     Server,
	certs.KonnectivityAPIServerClientDir: Client,
	certs.KonnectivityAgentDir:           Client,
}

// purposeOf goes by the name, and for an unknown one by what the certificate says.
func purposeOf(name string, cert *x509.Certificate, opts Options) Purpose {
	if p, ok := known[name]; ok {
		return p
	}
	server, client := certs.Permits(cert, x509.ExtKeyUsageServerAuth), certs.Permits(cert, x509.ExtKeyUsageClientAuth)
	switch {
	case strings.HasSuffix(name, "-ca") || cert.IsCA:
		return Authority
	case server == client:
		return Any
	case server && opts.Service.Name != "":
		return Serving
	case server:
		return Server
	case opts.AllowedNames != nil:
		return FrontProxy
	default:
		return Client
	}
}

// usage is the extended key usage that the peer's verifier asks for.
func (p Purpose) usage() x509.ExtKeyUsage {
	switch p {
	case Serving, Server:
		return x509.ExtKeyUsageServerAuth
	case FrontProxy, Client:
		return x509.ExtKeyUsageClientAuth
	default:
		return x509.ExtKeyUsageAny
	}
}

func (p Purpose) leaf() bool { return p != Authority && p != KeyOnly }

// serviceName matches the form that kube-aggregator asks for.
var serviceName = regexp.MustCompile(`^[a-z0-9-]+\.[a-z0-9-]+\.svc$`)

// serverNameOf is the name that kube-aggregator will ask for: of the Service that was given, or else the first in the
// certificate that has the form of one. It is empty when there is neither.
func serverNameOf(cert *x509.Certificate, opts Options) string {
	if opts.Service.Name != "" {
		return opts.Service.ServerName()
	}
	if i := slices.IndexFunc(cert.DNSNames, serviceName.MatchString); i >= 0 {
		return cert.DNSNames[i]
	}
	return ""
}
