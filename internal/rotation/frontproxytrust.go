// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/frontproxy"
)

// AggregatedServices returns the Services that APIServices name, each once, by namespace and name.
func (c *Cluster) AggregatedServices(ctx context.Context) ([]certs.Service, error) {
	list, err := c.Aggregator.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list APIServices: %w", err)
	}
	var out []certs.Service
	for _, a := range list.Items {
		if backend := a.Spec.Service; backend != nil {
			out = append(out, certs.Service{Name: backend.Name, Namespace: backend.Namespace})
		}
	}
	slices.SortFunc(out, func(a, b certs.Service) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(out), nil
}

// ChangeFrontProxyCAs adds CAs to the trust ConfigMap, takes others out and leaves the rest. The ConfigMap is changed in place:
// API servers keep their trust while it is missing, or lose all of it. A change in between is a conflict, since a CA
// that somebody added must not be lost. Where it is right already nothing is written.
func (c *Cluster) ChangeFrontProxyCAs(ctx context.Context, add, remove certs.Bundle) error {
	cm, err := c.TrustConfigMap(ctx)
	if err != nil {
		return err
	}
	bundle, err := certs.ParseBundle([]byte(cm.Data[frontproxy.CAKey]))
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %s: %w", frontproxy.Namespace, frontproxy.ConfigMapName, frontproxy.CAKey, err)
	}
	if needsNoChange(bundle, add, remove) {
		return nil
	}
	next := without(append(bundle, without(add, bundle...)...), remove...)
	if len(next) == 0 {
		return fmt.Errorf("ConfigMap %s/%s: expected another CA beside %s in %s, found none; no front proxy would be believed",
			frontproxy.Namespace, frontproxy.ConfigMapName, remove[0].Subject, frontproxy.CAKey)
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/resourceVersion", "value": cm.ResourceVersion},
		{"op": "replace", "path": "/data/" + frontproxy.CAKey, "value": string(next.PEM())},
	})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	configMaps, options := c.Core.CoreV1().ConfigMaps(frontproxy.Namespace), metav1.PatchOptions{FieldManager: FieldManager}
	if _, err := configMaps.Patch(ctx, frontproxy.ConfigMapName, types.JSONPatchType, patch, options); err != nil {
		return fmt.Errorf("patch ConfigMap %s/%s: %w", frontproxy.Namespace, frontproxy.ConfigMapName, err)
	}
	return nil
}
