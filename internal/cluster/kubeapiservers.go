// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/apis/identity"
)

// kubernetesName is in the certificate of every kube-apiserver that serves clients in the
// cluster. The address of a single instance may not be.
const kubernetesName = "kubernetes.default.svc"

// KubeAPIServers returns the URL of each kube-apiserver. They come from KubeAPIServerURLs or
// from the endpoints of the Service default/kubernetes, in which each kube-apiserver registers
// itself. An empty result is an error.
func (c *Cluster) KubeAPIServers(ctx context.Context) ([]string, error) {
	if len(c.KubeAPIServerURLs) > 0 {
		return slices.Clone(c.KubeAPIServerURLs), nil
	}
	// Each kube-apiserver registers itself in this slice
	// (k8s.io/kubernetes/pkg/controlplane/reconcilers).
	slice, err := c.Core.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes",
		metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get EndpointSlice default/kubernetes: %w", err)
	}
	var out []string
	for _, e := range addresses(*slice, func(name string) bool { return name == "https" }) {
		out = append(out, "https://"+e.Address)
	}
	slices.Sort(out)
	if out = slices.Compact(out); len(out) == 0 {
		return nil, fmt.Errorf(
			"expected endpoints of the Service default/kubernetes, found none; name URLs with --kube-apiserver")
	}
	return out, nil
}

// IdentityAge is six times the interval at which a kube-apiserver renews its Lease (KEP-1965).
const IdentityAge = time.Minute

// Identities returns the number of kube-apiservers that have renewed their identity Lease within
// IdentityAge, measured by kube-apiserver's clock. Those on hosts with the same name share a
// Lease.
func (c *Cluster) Identities(ctx context.Context) (int, error) {
	list, err := c.Core.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx,
		metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=kube-apiserver"})
	if err != nil {
		return 0, fmt.Errorf("list the identity Leases of kube-apiservers: %w", err)
	}
	skew, err := c.ClockSkew(ctx)
	if err != nil {
		return 0, err
	}
	now := c.Time().Add(-skew)
	live := slices.DeleteFunc(list.Items, func(l coordinationv1.Lease) bool {
		return l.Spec.RenewTime == nil || now.Sub(l.Spec.RenewTime.Time) > IdentityAge
	})
	return len(live), nil
}

// at returns a client for one kube-apiserver. It caches clients, because client-go opens a new
// connection for each client with its own dialer.
func (c *Cluster) at(kubeAPIServer string) (aggregatorclient.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if client, ok := c.instances[kubeAPIServer]; ok {
		return client, nil
	}
	config := rest.CopyConfig(c.Config)
	// This also works through a proxy of the kubeconfig, which connects to the requested
	// address.
	config.Host = kubeAPIServer
	config.Timeout = dialTimeout
	u, err := url.Parse(kubeAPIServer)
	if err != nil {
		return nil, fmt.Errorf("parse URL of kube-apiserver: %w", err)
	}
	if net.ParseIP(u.Hostname()) != nil && config.ServerName == "" && !config.Insecure {
		config.ServerName = kubernetesName
	}
	client, err := aggregatorclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client for %s: %w", kubeAPIServer, err)
	}
	if c.instances == nil {
		c.instances = map[string]aggregatorclient.Interface{}
	}
	c.instances[kubeAPIServer] = client
	return client, nil
}

// CheckObserved returns nil if the kube-apiserver has observed this version of the APIService. A
// GET with its resourceVersion is served from the watch cache when that is up to date, and fails
// after 3 s if it is older. kube-aggregator in the same process reacts to the change a little
// later.
func (c *Cluster) CheckObserved(ctx context.Context, kubeAPIServer string, a apiregistrationv1.APIService) error {
	client, err := c.at(kubeAPIServer)
	if err != nil {
		return err
	}
	got, err := client.ApiregistrationV1().APIServices().Get(ctx, a.Name,
		metav1.GetOptions{ResourceVersion: a.ResourceVersion})
	switch {
	case err != nil:
		return fmt.Errorf("get APIService %s at resourceVersion %s from %s: %w", a.Name, a.ResourceVersion,
			kubeAPIServer, err)
	case got.UID != a.UID:
		return fmt.Errorf("expected APIService %s with uid %s at %s, found uid %s: it was deleted and recreated",
			a.Name, a.UID, kubeAPIServer, got.UID)
	}
	return nil
}

// StatusError is a response with an error status.
type StatusError struct {
	URL    string
	Status int // the HTTP status code
	Text   string
}

func (e *StatusError) Error() string { return fmt.Sprintf("GET %s: %d %s", e.URL, e.Status, e.Text) }

// CheckResponds requests the API's resource list through one kube-apiserver and returns nil on
// success. It returns *StatusError for an error response. Any other error means that the
// kube-apiserver could not be reached.
func (c *Cluster) CheckResponds(ctx context.Context, kubeAPIServer string, a apiregistrationv1.APIService) error {
	client, err := c.at(kubeAPIServer)
	if err != nil {
		return err
	}
	path := "/apis/" + a.Spec.Group + "/" + a.Spec.Version
	var status int
	result := client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).StatusCode(&status)
	switch err := result.Error(); {
	case err == nil:
		return nil
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown || status != 0:
		return &StatusError{kubeAPIServer + path, status, err.Error()}
	default:
		return fmt.Errorf("request to %s for %s: %w", kubeAPIServer, path, err)
	}
}

// ErrNoIdentityReview means that an API does not report the front proxy's certificate.
var ErrNoIdentityReview = errors.New("API does not serve IdentityReview")

// FrontProxyCertificate creates an IdentityReview in the API through one kube-apiserver. It
// returns the SHA-256, in hexadecimal, of the certificate that the kube-apiserver presented to
// the API. ErrNoIdentityReview means that the API does not serve this kind or the user may not
// create it.
func (c *Cluster) FrontProxyCertificate(ctx context.Context, kubeAPIServer string,
	a apiregistrationv1.APIService) (string, error) {
	client, err := c.at(kubeAPIServer)
	if err != nil {
		return "", err
	}
	groupVersion := a.Spec.Group + "/" + a.Spec.Version
	body := fmt.Appendf(nil, `{"apiVersion": %q, "kind": "IdentityReview"}`, groupVersion)
	data, err := client.Discovery().RESTClient().Post().AbsPath("/apis", groupVersion, "identityreviews").SetHeader(
		"Content-Type", "application/json").Body(body).Do(ctx).Raw()
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsForbidden(err) {
		return "", ErrNoIdentityReview
	}
	var review identity.IdentityReview
	if err == nil {
		err = json.Unmarshal(data, &review)
	}
	if err != nil {
		return "", fmt.Errorf("request to %s for an IdentityReview: %w", kubeAPIServer, err)
	}
	if review.Status.ProxyCertificateSHA256 == "" {
		return "", ErrNoIdentityReview // a server that does not have the field yet
	}
	return review.Status.ProxyCertificateSHA256, nil
}

// ClockSkew returns how far the local clock is ahead of the Date in kube-apiserver's response
// (RFC 9110, 6.6.1), in whole seconds.
func (c *Cluster) ClockSkew(ctx context.Context) (time.Duration, error) {
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return 0, fmt.Errorf("create client: %w", err)
	}
	address := strings.TrimSuffix(c.Config.Host, "/") + "/version"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("request time of kube-apiserver: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // ignore the content
	date, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return 0, fmt.Errorf("%s: expected the header Date: %w", address, err)
	}
	return c.Time().Sub(date).Truncate(time.Second), nil
}

// maxClockSkew is less than the time by which certificates are backdated, and more than the
// duration of a request.
const maxClockSkew = 5 * time.Minute

// CheckClock returns *certs.RefusedError if the clock skew exceeds maxClockSkew. Certificates
// would otherwise look expired or be issued for a wrong time.
func CheckClock(ctx context.Context, o interface {
	ClockSkew(context.Context) (time.Duration, error)
}) error {
	skew, err := o.ClockSkew(ctx)
	if err != nil {
		return err
	}
	if skew.Abs() <= maxClockSkew {
		return nil
	}
	direction := "ahead"
	if skew < 0 {
		direction = "behind"
	}
	return &certs.RefusedError{Path: "the clock of this machine", Reason: fmt.Sprintf(
		"expected at most %s of difference from the clock of kube-apiserver, found %s %s; correct the wrong clock",
		maxClockSkew, skew.Abs(), direction)}
}
