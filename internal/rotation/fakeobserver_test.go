// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/frontproxy"
)

func (f *fakeCluster) apiService(name string, bundle certs.Bundle) apiregistrationv1.APIService {
	a := apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: strconv.Itoa(f.version)},
		Spec: apiregistrationv1.APIServiceSpec{
			Service:  &apiregistrationv1.ServiceReference{Name: service.Name, Namespace: service.Namespace},
			CABundle: bundle.PEM(),
		},
	}
	if f.register != nil {
		f.register(&a)
	}
	return a
}

func (f *fakeCluster) APIServices(_ context.Context, s certs.Service) ([]apiregistrationv1.APIService, error) {
	f.step()
	switch s.Name {
	case service.Name:
	case "far", "strange":
		return []apiregistrationv1.APIService{f.apiService("v1."+s.Name, f.caBundle)}, nil
	default:
		return []apiregistrationv1.APIService{{ObjectMeta: metav1.ObjectMeta{Name: "v1." + s.Name}}}, nil
	}
	return []apiregistrationv1.APIService{f.apiService("v1.widgets", f.caBundle), f.apiService("v2.widgets", f.second)},
		nil
}

func (f *fakeCluster) Secrets(namespace string) typedcorev1.SecretInterface {
	return f.secrets.Secrets(namespace)
}

func (f *fakeCluster) ClockSkew(context.Context) (time.Duration, error) { return f.skew, nil }

func (f *fakeCluster) AggregatedServices(context.Context) ([]certs.Service, error) {
	f.step()
	return append([]certs.Service{service}, f.others...), nil
}

func (f *fakeCluster) Endpoints(_ context.Context, s certs.Service) ([]cluster.Endpoint, error) {
	f.step()
	if s.Name == "far" && !f.hasFar {
		return nil, f.farEndpoints
	}
	return []cluster.Endpoint{{Address: "10.0.0.1:443", Ready: true}, {Address: "10.0.0.2:443"}}, nil
}

func (f *fakeCluster) KubeAPIServers(context.Context) ([]string, error) {
	f.step()
	if f.restarts {
		return []string{"https://10.0.1.1"}, nil
	}
	return []string{"https://10.0.1.1", "https://10.0.1.2"}, nil
}

func (f *fakeCluster) Served(_ context.Context, _ certs.Service, trust certs.Bundle) ([]cluster.Served, error) {
	f.step()
	leaf := f.served()
	return []cluster.Served{
		{Endpoint: cluster.Endpoint{Address: "10.0.0.1:443", Ready: true}, Leaf: leaf,
			Err: f.verify(leaf, trust, x509.ExtKeyUsageServerAuth)},
		{Endpoint: cluster.Endpoint{Address: "10.0.0.2:443"},
			Err: fmt.Errorf("dial: %w", cmp.Or[error](f.cutOff, syscall.ECONNREFUSED))},
	}, nil
}

func (f *fakeCluster) MayChangeTrust(context.Context, certs.Service) error {
	f.step()
	return f.forbidden
}

func (f *fakeCluster) ChangeCABundle(_ context.Context, _ certs.Service, add, remove certs.Bundle) error {
	f.step()
	f.mustHold(service)
	var refused error
	for i, b := range []*certs.Bundle{&f.caBundle, &f.second} {
		next := b.Merge(f.now, add...).Without(remove...)
		if owned := cluster.OwnedByOthers(f.apiService(fmt.Sprintf("v%d.widgets", i+1), *b)); owned != nil &&
			!sameCAs(next, *b) {
			if refused = owned; remove != nil {
				return refused
			}
			continue
		}
		*b, f.version = next, f.version+1
		f.step()
		f.mustRespond()
		if err := f.responseLost(); err != nil {
			return err
		}
	}
	return refused
}

func (f *fakeCluster) Exclusive(ctx context.Context, s certs.Service, do func(context.Context) error) error {
	f.leases, f.wasLeased = append(f.leases, s), true
	defer func() { f.leases = f.leases[:len(f.leases)-1] }()
	return do(ctx)
}

// mustHold reports a test error for a write without the Lease.
func (f *fakeCluster) mustHold(s certs.Service) {
	f.t.Helper()
	if !slices.Contains(f.leases, s) {
		f.t.Errorf("a write without the Lease of %s/%s; held are %v", s.Namespace, s.Name, f.leases)
	}
}

// responseLost returns the error of a client whose connection breaks after its write.
func (f *fakeCluster) responseLost() error {
	if f.lostResponse--; f.lostResponse == 0 {
		return errors.New("connection reset by peer")
	}
	return nil
}

func (f *fakeCluster) CheckObserved(_ context.Context, kubeAPIServer string, a apiregistrationv1.APIService) error {
	f.step()
	if f.unseen {
		return fmt.Errorf("%s has an older version than %s", kubeAPIServer, a.ResourceVersion)
	}
	return nil
}

func (f *fakeCluster) CheckResponds(_ context.Context, _ string, a apiregistrationv1.APIService) error {
	f.step()
	if a.Name == "v1.broken" || a.Name == f.down {
		return &cluster.StatusError{URL: "https://10.0.1.1", Status: 503, Text: "no endpoints"}
	}
	if cert, err := f.inUse(f.proxies[0]); a.Name == "v1.metrics" && f.accepts != nil &&
		(err != nil || !slices.ContainsFunc(f.accepts, cert.Equal)) {
		return &cluster.StatusError{URL: "https://10.0.1.1", Status: http.StatusUnauthorized, Text: "Unauthorized"}
	}
	if f.failResponse != nil {
		if err := f.failResponse(); err != nil {
			return err
		}
	}
	return f.responds()
}

func (f *fakeCluster) FrontProxyCertificate(_ context.Context, kubeAPIServer string,
	a apiregistrationv1.APIService) (string, error) {
	f.step()
	if f.noReview || a.Name != "v1.widgets" {
		return "", cluster.ErrNoIdentityReview
	}
	dir := f.proxies[0]
	if len(f.proxies) > 1 && strings.HasSuffix(kubeAPIServer, "2") {
		dir = f.proxies[1]
	}
	cert, err := f.inUse(dir)
	if err != nil {
		return "", err
	}
	return certs.Fingerprint(cert), nil
}

func (f *fakeCluster) ProbeFrontProxy(_ context.Context, e cluster.Endpoint, s certs.Service, _ certs.Bundle,
	proxy *certs.KeyPair) (cluster.ProbeResult, error) {
	f.step()
	switch {
	case !e.Ready:
		return "", errors.New("connection refused")
	case s.Name == "strange":
		return cluster.Inconclusive, nil
	case s.Name == "far" && f.farProbe != "" && !proxy.Certificate.Equal(f.cert(certs.FrontProxyClientDir)):
		return f.farProbe, nil
	case f.probe != "":
		return f.probe, nil
	case f.verify(proxy.Certificate, f.trusted, x509.ExtKeyUsageClientAuth) != nil:
		return cluster.NotTrusted, nil
	}
	return cluster.Accepted, nil
}

func (f *fakeCluster) TrustConfigMap(context.Context) (*corev1.ConfigMap, error) {
	f.step()
	return &corev1.ConfigMap{Data: map[string]string{
		frontproxy.CAKey: string(f.publish().PEM()), frontproxy.ClientCAKey: f.users,
		frontproxy.AllowedNamesKey: f.names, frontproxy.UsernameHeadersKey: `["X-Remote-User"]`,
	}}, nil
}

func (f *fakeCluster) Identities(context.Context) (int, error) { return max(f.identities, 1), nil }

func (f *fakeCluster) ChangeFrontProxyCAs(_ context.Context, add, remove certs.Bundle, dryRun ...string) error {
	f.step()
	if len(dryRun) > 0 {
		return f.forbidden
	}
	f.mustHold(service)
	f.mustHold(FrontProxy)
	f.trusted = f.trusted.Merge(f.now, add...).Without(remove...)
	f.step()
	f.mustRespond()
	return f.responseLost()
}
