// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/manifest"
)

// planSecret compares the serving Secret with the directory. It returns the Secret that is there, or nil.
func (c *Cluster) planSecret(ctx context.Context, o ApplyOptions, src *source) (ApplyItem, *corev1.Secret, error) {
	item := ApplyItem{
		Kind: "Secret", Namespace: o.Service.Namespace, Name: o.Secret,
		Action: ApplyChange, Reason: "its certificate is another", SHA256: []string{certs.Fingerprint(src.chain[0])},
	}
	data, err := manifest.PairData(src.store, certs.ServingDir, false, c.now())
	if err != nil {
		return item, nil, err
	}
	client, writes := c.Core.CoreV1().Secrets(o.Service.Namespace), []map[string][]byte{data}
	item.write = func(ctx context.Context, dryRun bool) error {
		for _, data := range writes {
			if _, err := client.Apply(ctx, manifest.SecretConfig(o.Secret, o.Service.Namespace, data), applyOptions(dryRun, o.ForceConflicts)); err != nil {
				return fmt.Errorf("apply Secret %s/%s: %w", o.Service.Namespace, o.Secret, explainConflict(err))
			}
		}
		return nil
	}
	stored, err := client.Get(ctx, o.Secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		item.Action, item.Reason = ApplyCreate, "it does not exist"
		return item, nil, nil
	}
	if err != nil {
		return item, nil, fmt.Errorf("get Secret %s/%s: %w", o.Service.Namespace, o.Secret, err)
	}
	// Others may keep keys of their own in it.
	same := !slices.ContainsFunc(slices.Collect(maps.Keys(data)), func(key string) bool { return !bytes.Equal(data[key], stored.Data[key]) })
	immutable := stored.Immutable != nil && *stored.Immutable
	ours, others := owners(stored.ManagedFields, dataPaths(data)...)
	switch {
	case stored.Type != corev1.SecretTypeTLS:
		return item, stored, fmt.Errorf("plan Secret %s/%s: expected the type %s, found %s, which nobody can change; choose another name",
			o.Service.Namespace, o.Secret, corev1.SecretTypeTLS, stored.Type)
	case !same && immutable:
		return item, stored, fmt.Errorf("plan Secret %s/%s: expected one that can be changed, found it immutable; choose another name, and mount that",
			o.Service.Namespace, o.Secret)
	case same && len(others) > 0 && o.ForceConflicts && !immutable:
		item.Reason = "its data is owned by " + strings.Join(others, ", ")
		writes = []map[string][]byte{withNewlines(data), data}
	case same && ours:
		item.Action, item.Reason = ApplyUnchanged, "it holds this pair"
	case same:
		item.Reason = FieldManager + " does not own its data yet"
	case slices.Equal(stored.Data[corev1.TLSCertKey], data[corev1.TLSCertKey]):
		item.Reason = "its key or its CAs are others"
	}
	return item, stored, nil
}

func dataPaths(data map[string][]byte) []fieldpath.Path {
	var out []fieldpath.Path
	for key := range data {
		out = append(out, fieldpath.MakePathOrDie("data", key))
	}
	return out
}

// withNewlines means the same: only what differs is taken from its owners by force, as for a caBundle.
func withNewlines(data map[string][]byte) map[string][]byte {
	touched := map[string][]byte{}
	for key, value := range data {
		touched[key] = append(bytes.Clone(value), '\n')
	}
	return touched
}
