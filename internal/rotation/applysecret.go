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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/manifest"
)

// planSecret compares the serving Secret with the directory. It returns the Secret that is there, or nil.
func (c *Cluster) planSecret(ctx context.Context, o ApplyOptions, src *source) (ApplyItem, *corev1.Secret, error) {
	item := ApplyItem{
		Kind: "Secret", Namespace: o.Service.Namespace, Name: o.Secret,
		Action: ApplyChange, Reason: "its certificate is another", SHA256: []string{certs.Fingerprint(src.chain[0])},
	}
	data, err := manifest.Secret(manifest.SecretOptions{Name: o.Secret, Namespace: o.Service.Namespace, From: src.dir, Now: c.now()})
	if err != nil {
		return item, nil, err
	}
	var want corev1.Secret
	if err := yaml.Unmarshal(data, &want); err != nil {
		return item, nil, fmt.Errorf("read manifest of Secret: %w", err)
	}
	client, patches := c.Core.CoreV1().Secrets(o.Service.Namespace), [][]byte{data}
	item.write = func(ctx context.Context, dryRun bool) error {
		for _, patch := range patches {
			if _, err := client.Patch(ctx, o.Secret, types.ApplyPatchType, patch, patchOptions(dryRun, o.ForceConflicts)); err != nil {
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
	same := !slices.ContainsFunc(slices.Collect(maps.Keys(want.Data)), func(key string) bool { return !bytes.Equal(want.Data[key], stored.Data[key]) })
	immutable := stored.Immutable != nil && *stored.Immutable
	ours, others := owners(stored.ManagedFields, dataPaths(want)...)
	switch {
	case stored.Type != want.Type:
		return item, stored, fmt.Errorf("plan Secret %s/%s: expected the type %s, found %s, which nobody can change; choose another name",
			o.Service.Namespace, o.Secret, want.Type, stored.Type)
	case !same && immutable:
		return item, stored, fmt.Errorf("plan Secret %s/%s: expected one that can be changed, found it immutable; choose another name, and mount that",
			o.Service.Namespace, o.Secret)
	case same && len(others) > 0 && o.ForceConflicts && !immutable:
		item.Reason = "its data is owned by " + strings.Join(others, ", ")
		touched, err := withNewlines(want)
		if err != nil {
			return item, stored, err
		}
		patches = [][]byte{touched, data}
	case same && ours:
		item.Action, item.Reason = ApplyUnchanged, "it holds this pair"
	case same:
		item.Reason = FieldManager + " does not own its data yet"
	case slices.Equal(stored.Data[corev1.TLSCertKey], want.Data[corev1.TLSCertKey]):
		item.Reason = "its key or its CAs are others"
	}
	return item, stored, nil
}

func dataPaths(s corev1.Secret) []fieldpath.Path {
	var out []fieldpath.Path
	for key := range s.Data {
		out = append(out, fieldpath.MakePathOrDie("data", key))
	}
	return out
}

// withNewlines is the Secret with data that means the same: only what differs is taken from its owners by force, as for a
// caBundle.
func withNewlines(s corev1.Secret) ([]byte, error) {
	touched := s.DeepCopy()
	for key, value := range touched.Data {
		touched.Data[key] = append(value, '\n')
	}
	data, err := yaml.Marshal(touched)
	if err != nil {
		return nil, fmt.Errorf("encode Secret: %w", err)
	}
	return data, nil
}
