// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/frontproxy"
)

// ChangeFrontProxyCAs adds CAs to the trust ConfigMap, takes others out and leaves the rest. The ConfigMap is changed in place:
// API servers keep their trust while it is missing, or lose all of it. A change in between is a conflict, since a CA
// that somebody added must not be lost. Where it is right already nothing is written.
func (c Client) ChangeFrontProxyCAs(ctx context.Context, add, remove certs.Bundle) error {
	cm, err := c.TrustConfigMap(ctx)
	if err != nil {
		return err
	}
	bundle, err := certs.ParseBundle([]byte(cm.Data[frontproxy.CAKey]))
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %s: %w", frontproxy.Namespace, frontproxy.ConfigMapName, frontproxy.CAKey, err)
	}
	if NeedsNoChange(bundle, add, remove) {
		return nil
	}
	next := append(bundle, add.Without(bundle...)...).Without(remove...)
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
	configMaps, options := c.Core.CoreV1().ConfigMaps(frontproxy.Namespace), metav1.PatchOptions{FieldManager: cluster.FieldManager}
	if _, err := configMaps.Patch(ctx, frontproxy.ConfigMapName, types.JSONPatchType, patch, options); err != nil {
		return fmt.Errorf("patch ConfigMap %s/%s: %w", frontproxy.Namespace, frontproxy.ConfigMapName, err)
	}
	return nil
}
