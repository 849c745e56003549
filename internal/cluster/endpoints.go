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

// dialTimeout is for connection and handshake together; kube-aggregator gives a probe 5 s.
const dialTimeout = 5 * time.Second

// Endpoint is an address behind the Service.
type Endpoint struct {
	Address string // HOST:PORT
	Ready   bool   // traffic of the Service goes there
	Pod     string // empty where it is none
}

// Served is what an endpoint presents.
type Served struct {
	Endpoint Endpoint
	// Leaf is nil when there was no TLS handshake; Verdict says why.
	Leaf *x509.Certificate
	// Verdict is nil when kube-aggregator would accept the certificate with that trust, for <service>.<namespace>.svc.
	Verdict error
}

// Endpoints returns the addresses of the Service in its EndpointSlices, ready or not, by pod and address: a pod in a
// dual-stack cluster is in a slice of each family. They are those of the ports that its APIServices name, of all ports
// while there is no APIService. A Service of type ExternalName has one, its name. EndpointAddresses replace them all,
// of the Service EndpointsOf.
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
	// While a slice is split, an endpoint is in two.
	return slices.CompactFunc(out, func(a, b Endpoint) bool { return a.Address == b.Address }), nil
}

// BackendPorts are the ports of the Service to which kube-aggregator connects, each once.
func BackendPorts(apiServices []apiregistrationv1.APIService) []int32 {
	var out []int32
	for _, a := range apiServices {
		port := ptr.Deref(a.Spec.Service.Port, 443) // the default of the API
		if !slices.Contains(out, port) {
			out = append(out, port)
		}
	}
	return out
}

// addresses lists the endpoints of one slice, at its TCP ports that take accepts by name.
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
			// The addresses of one endpoint are the same backend; kube-proxy too takes the first alone.
			out = append(out, Endpoint{
				Address: net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*port.Port))),
				// The API defines an unknown condition as ready.
				Ready: ptr.Deref(e.Conditions.Ready, true), Pod: pod,
			})
		}
	}
	return out
}

// Served dials each endpoint as kube-aggregator does, with trust in the place of the caBundle, and returns what each
// presents. An endpoint that cannot be dialled is a Verdict, not an error.
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

// Present dials an endpoint and returns what it serves, with the verdict that kube-aggregator would give.
func (c *Cluster) Present(ctx context.Context, e Endpoint, s certs.Service, trust certs.Bundle) Served {
	served := Served{Endpoint: e}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	presented := make(chan *x509.Certificate, 2) // the transport goes on when the request has ended
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{TLSHandshakeDone: func(
		state tls.ConnectionState, err error) {
		if err == nil {
			presented <- state.PeerCertificates[0]
			cancel() // whatever it would answer
		}
	}})
	response, err := c.request(ctx, e, s, "/", nil, c.tlsConfig(s, trust))
	if c.PortForward && utilnet.IsProbableEOF(err) { // how a forwarded connection ends where nothing listens
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
	served.Verdict = fmt.Errorf("connect to %s: %w", e.Address, err)
	// A refused certificate is in the error: nothing has to be trusted in order to see it.
	if refused, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		served.Leaf, served.Verdict = refused.UnverifiedCertificates[0], refused.Err
	}
	return served
}

// request sends a GET to an endpoint on a connection of its own, since a server may judge each connection once: through
// the proxy that the kubeconfig names, if it does. What the variable HTTPS_PROXY names seldom leads to pods.
func (c *Cluster) request(ctx context.Context, e Endpoint, s certs.Service, path string, header http.Header,
	config *tls.Config) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+e.Address+path, nil)
	if err != nil {
		return nil, err
	}
	request.Host, request.Header = s.ServerName(), header
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, DialContext: c.Dial}
	if c.PortForward && e.Pod != "" { // kube-apiserver is asked through the proxy
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn,
			error) {
			return c.forward(ctx, s.Namespace, e)
		}
	} else if c.Config.Proxy != nil {
		proxy, err := c.Config.Proxy(request)
		if err != nil {
			return nil, err
		}
		if proxy != nil && proxy.Scheme == "https" { // net/http would want of it the endpoint's own certificate
			return nil, fmt.Errorf("through the proxy-url %s of the kubeconfig: expected http:// or socks5://",
				proxy.Redacted())
		}
		transport.Proxy = http.ProxyURL(proxy)
	}
	return (&http.Client{Timeout: dialTimeout, Transport: transport}).Do(request)
}

// tlsConfig is that of kube-aggregator: trust is the caBundle alone, and the name is the short one of the Service.
func (c *Cluster) tlsConfig(s certs.Service, trust certs.Bundle) *tls.Config {
	return &tls.Config{RootCAs: trust.Pool(), ServerName: s.ServerName(), MinVersion: tls.VersionTLS12, Time: c.Time}
}
