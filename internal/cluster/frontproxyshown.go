// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/pkg/apis/identity"
)

// ErrNoReview says that an API does not tell which certificate the front proxy showed.
var ErrNoReview = errors.New("it serves no IdentityReview")

// FrontProxyShown asks the API, through one kube-apiserver, for an IdentityReview, and returns the SHA-256 of the certificate that the
// kube-apiserver showed to it, in hexadecimal. ErrNoReview means that this API has no such kind, or keeps it from this user.
func (c *Cluster) FrontProxyShown(ctx context.Context, kubeAPIServer string, a apiregistrationv1.APIService) (string, error) {
	client, err := c.at(kubeAPIServer)
	if err != nil {
		return "", err
	}
	path := "/apis/" + a.Spec.Group + "/" + a.Spec.Version
	body, err := json.Marshal(map[string]string{"apiVersion": a.Spec.Group + "/" + a.Spec.Version, "kind": "IdentityReview"})
	if err != nil {
		return "", err
	}
	data, err := client.Discovery().RESTClient().Post().AbsPath(path, "identityreviews").SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Raw()
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsForbidden(err) {
		return "", ErrNoReview
	}
	var review identity.IdentityReview
	if err == nil {
		err = json.Unmarshal(data, &review)
	}
	if err != nil {
		return "", fmt.Errorf("ask %s for an IdentityReview: %w", kubeAPIServer, err)
	}
	if review.Status.ProxyCertificateSHA256 == "" {
		return "", ErrNoReview // a server from before the field
	}
	return review.Status.ProxyCertificateSHA256, nil
}
