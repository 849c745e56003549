// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/apis/identity"
)

const identityReviews = "identityreviews"

// errNoReview says that an API does not tell which certificate the front proxy showed.
var errNoReview = errors.New("it serves no IdentityReview")

// FrontProxyShown asks the API, through one kube-apiserver, for an IdentityReview, and returns the SHA-256 of the certificate that the
// kube-apiserver showed to it, in hexadecimal. errNoReview means that this API has no such kind, or keeps it from this user.
func (c *Cluster) FrontProxyShown(ctx context.Context, kubeAPIServer string, a apiregistrationv1.APIService) (string, error) {
	client, err := c.at(kubeAPIServer)
	if err != nil {
		return "", err
	}
	path := "/apis/" + a.Spec.Group + "/" + a.Spec.Version
	var list metav1.APIResourceList
	data, err := client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return "", fmt.Errorf("ask %s for %s: %w", kubeAPIServer, path, err)
	}
	if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Name == identityReviews && slices.Contains(r.Verbs, "create")
	}) {
		return "", errNoReview
	}
	body, err := json.Marshal(map[string]string{"apiVersion": a.Spec.Group + "/" + a.Spec.Version, "kind": "IdentityReview"})
	if err != nil {
		return "", err
	}
	data, err = client.Discovery().RESTClient().Post().AbsPath(path, identityReviews).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Raw()
	if apierrors.IsForbidden(err) {
		return "", errNoReview
	}
	var review identity.IdentityReview
	if err == nil {
		err = json.Unmarshal(data, &review)
	}
	if err != nil {
		return "", fmt.Errorf("ask %s for an IdentityReview: %w", kubeAPIServer, err)
	}
	if review.Status.ProxyCertificateSHA256 == "" {
		return "", errNoReview // a server from before the field
	}
	return review.Status.ProxyCertificateSHA256, nil
}

// proxyShown returns nil when each kube-apiserver shows one of the certificates to the API of the Service. Where no API tells, it says so
// once, and the hold stands for it.
func (p *procedure) proxyShown(ctx context.Context, wanted ...*certs.KeyPair) error {
	if p.opts.Observer == nil {
		return nil
	}
	var prints []string
	for _, pair := range wanted {
		prints = append(prints, certs.Fingerprint(pair.Certificate))
	}
	kubeAPIServers, err := p.opts.Observer.KubeAPIServers(ctx)
	if err != nil {
		return err
	}
	apiServices, err := p.opts.Observer.APIServices(ctx, p.opts.Service)
	if err != nil {
		return err
	}
	var other error
	missing := 0
	for _, k := range kubeAPIServers {
		told := false
		for _, a := range apiServices {
			shown, err := p.opts.Observer.FrontProxyShown(ctx, k, a)
			if errors.Is(err, errNoReview) {
				continue
			}
			if err != nil {
				return err
			}
			if told = true; !slices.Contains(prints, shown) {
				missing++
				other = fmt.Errorf("%s still shows the front proxy's certificate sha256:%.16s, not sha256:%.16s; does it read one of %q?", k, shown, prints[0], p.paths())
			}
			break
		}
		if !told && !p.proxyUnseen {
			p.proxyUnseen = true
			p.note(fmt.Sprintf("Service %s/%s serves no IdentityReview to this user, so which certificate a kube-apiserver shows is not seen; the hold stands for it",
				p.opts.Service.Namespace, p.opts.Service.Name))
		}
	}
	// Where fewer directories were named than there are kube-apiservers, the others keep theirs.
	if dirs := p.opts.otherDirs(); dirs != nil && missing <= len(kubeAPIServers)-len(dirs) {
		return nil
	}
	return other
}

func (p *procedure) paths() []string {
	var out []string
	for _, dir := range p.leafDirs {
		out = append(out, p.opts.Store.Path(dir))
	}
	return out
}
