// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"example.com/extension-apiserver/internal/certs"
)

// dialTimeout limits connection and handshake together; kube-aggregator allows 5 s for a probe.
const dialTimeout = 5 * time.Second

// Endpoint is an address behind the Service.
type Endpoint struct {
	Address string // HOST:PORT
	Ready   bool   // whether the Service sends traffic to it
	Pod     string // empty if it is not a pod
}

// Served is the result of dialling an endpoint.
type Served struct {
	Endpoint Endpoint
	// Leaf is the served certificate; nil if there was no TLS handshake, for the reason in
	// Err.
	Leaf *x509.Certificate
	// Err is the verification error for <service>.<namespace>.svc with the given trust; nil
	// if kube-aggregator would accept the certificate.
	Err error
}

// Endpoints returns the addresses in the Service's EndpointSlices, ready or not, sorted by pod
// and address: a pod in a dual-stack cluster is in a slice of each family. The ports are those
// that its APIServices specify, or all ports if it has no APIService. A Service of type
// ExternalName has one address, its name. If EndpointAddresses is set, Endpoints returns those
// instead for the Service EndpointsOf.
func (c *Cluster) Endpoints(ctx context.Context, s certs.Service) ([]Endpoint, error) {
	if len(c.EndpointAddresses) > 0 && (c.EndpointsOf == nil || *c.EndpointsOf == s) {
		var out []Endpoint
		for _, address := range c.EndpointAddresses {
			out = append(out, Endpoint{Address: address, Ready: true})
		}
		return out, nil
	}
	service, err := c.Core.CoreV1().Services(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get Service %s/%s: %w", s.Namespace, s.Name, err)
	}
	apiServices, err := c.APIServices(ctx, s)
	if err != nil {
		return nil, err
	}
	numbers := BackendPorts(apiServices)
	var out []Endpoint
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		for _, port := range numbers {
			out = append(out, Endpoint{Address: net.JoinHostPort(service.Spec.ExternalName, strconv.Itoa(int(port))),
				Ready: true})
		}
		return out, nil
	}
	list, err := c.Core.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + s.Name,
	})
	if err != nil {
		return nil, fmt.Errorf("list EndpointSlices of Service %s/%s: %w", s.Namespace, s.Name, err)
	}
	for _, slice := range list.Items {
		out = append(out, addresses(slice, func(name string) bool {
			return len(numbers) == 0 || slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
				return p.Name == name && slices.Contains(numbers, p.Port)
			})
		})...)
	}
	slices.SortFunc(out, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod),
			cmp.Compare(a.Address, b.Address))
	})
	// While a slice is being split, an endpoint may be in both.
	return slices.CompactFunc(out, func(a, b Endpoint) bool { return a.Address == b.Address }), nil
}

// BackendPorts returns the ports of the Service to which kube-aggregator connects, each once.
func BackendPorts(apiServices []apiregistrationv1.APIService) []int32 {
	var out []int32
	for _, a := range apiServices {
		port := ptr.Deref(a.Spec.Service.Port, 443) // the default in the API
		if !slices.Contains(out, port) {
			out = append(out, port)
		}
	}
	return out
}

// addresses returns the endpoints of one slice at its TCP ports for whose names take returns
// true.
func addresses(slice discoveryv1.EndpointSlice, take func(portName string) bool) []Endpoint {
	var out []Endpoint
	for _, port := range slice.Ports {
		if port.Port == nil || ptr.Deref(port.Protocol, corev1.ProtocolTCP) != corev1.ProtocolTCP ||
			!take(ptr.Deref(port.Name, "")) {
			continue
		}
		for _, e := range slice.Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			pod := ""
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
				pod = e.TargetRef.Name
			}
			// All addresses of one endpoint are the same backend; kube-proxy also uses only the
			// first.
			out = append(out, Endpoint{
				Address: net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*port.Port))),
				// The API defines an unknown condition as ready.
				Ready: ptr.Deref(e.Conditions.Ready, true), Pod: pod,
			})
		}
	}
	return out
}

// Served dials each endpoint as kube-aggregator does, with trust instead of the caBundle, and
// returns the certificates. A failure to dial an endpoint is reported in Err, not as an
// error.
func (c *Cluster) Served(ctx context.Context, s certs.Service, trust certs.Bundle) ([]Served, error) {
	endpoints, err := c.Endpoints(ctx, s)
	if err != nil {
		return nil, err
	}
	var out []Served
	for _, e := range endpoints {
		out = append(out, c.Present(ctx, e, s, trust))
	}
	return out, ctx.Err()
}

// Present dials an endpoint and returns the certificate that it serves, with the verification
// result of kube-aggregator.
func (c *Cluster) Present(ctx context.Context, e Endpoint, s certs.Service, trust certs.Bundle) Served {
	served := Served{Endpoint: e}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	presented := make(chan *x509.Certificate, 2) // buffered, because the transport continues after the request ends
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{TLSHandshakeDone: func(
		state tls.ConnectionState, err error) {
		if err == nil {
			presented <- state.PeerCertificates[0]
			cancel() // the response does not matter
		}
	}})
	response, err := c.request(ctx, e, s, "/", nil, c.tlsConfig(s, trust))
	if c.PortForward && utilnet.IsProbableEOF(err) { // a forwarded connection ends like this if nothing listens
		err = fmt.Errorf("%w: %w", syscall.ECONNREFUSED, err)
	}
	if err == nil {
		_ = response.Body.Close()
	}
	select {
	case served.Leaf = <-presented:
		return served
	default:
	}
	served.Err = fmt.Errorf("connect to %s: %w", e.Address, err)
	// The error contains a rejected certificate, so it can be observed without trusting any CA.
	if refused, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		served.Leaf, served.Err = refused.UnverifiedCertificates[0], refused.Err
	}
	return served
}

// request sends a GET to an endpoint on a new connection, because a server may authenticate each
// connection only once. It uses the proxy of the kubeconfig, if any. It ignores HTTPS_PROXY,
// because such a proxy rarely reaches pods.
func (c *Cluster) request(ctx context.Context, e Endpoint, s certs.Service, path string, header http.Header,
	config *tls.Config) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+e.Address+path, nil)
	if err != nil {
		return nil, err
	}
	request.Host, request.Header = s.ServerName(), header
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, DialContext: c.Dial}
	if c.PortForward && e.Pod != "" { // the proxy is then used for kube-apiserver
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn,
			error) {
			return c.forward(ctx, s.Namespace, e)
		}
	} else if c.Config.Proxy != nil {
		proxy, err := c.Config.Proxy(request)
		if err != nil {
			return nil, err
		}
		if proxy != nil && proxy.Scheme == "https" { // net/http would want the endpoint's certificate from it
			return nil, fmt.Errorf("through the proxy-url %s of the kubeconfig: expected http:// or socks5://",
				proxy.Redacted())
		}
		transport.Proxy = http.ProxyURL(proxy)
	}
	return (&http.Client{Timeout: dialTimeout, Transport: transport}).Do(request)
}

// tlsConfig returns kube-aggregator's TLS configuration: it trusts only the caBundle and
// verifies the Service's short name.
func (c *Cluster) tlsConfig(s certs.Service, trust certs.Bundle) *tls.Config {
	return &tls.Config{RootCAs: trust.Pool(), ServerName: s.ServerName(), MinVersion: tls.VersionTLS12, Time: c.Time}
}
