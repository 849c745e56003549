// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

const (
	// inV1, inV2 and inScale are the fieldsV1 of replicas in each version. purposeToo also
	// contains the purpose.
	inV1       = `{"f:spec":{"f:precision":{}}}`
	inV2       = `{"f:spec":{"f:places":{"f:wanted":{}}}}`
	inScale    = `{"f:spec":{"f:replicas":{}}}`
	purposeToo = `{"f:spec":{"f:precision":{},"f:purpose":{}}}`
	purpose    = `{"f:spec":{"f:purpose":{}}}`
)

// applier returns a managedFields entry of a client that uses server-side apply. version is a
// version of the group, or an apiVersion.
func applier(manager, version, fields string) metav1.ManagedFieldsEntry {
	if !strings.Contains(version, "/") {
		version = group + "/" + version
	}
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply,
		APIVersion: version,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
}

// autoscaler returns the entry of a client that updates through the scale without server-side
// apply.
func autoscaler(version, fields string) metav1.ManagedFieldsEntry {
	entry := applier("hpa", version, fields)
	entry.Operation, entry.Subresource = metav1.ManagedFieldsOperationUpdate, "scale"
	return entry
}

// TestScaleOwners: in every version, the owner of replicas through the object also owns it
// through the scale, and vice versa. Otherwise server-side apply reports no conflict when two
// clients set the field (https://issues.k8s.io/82046).
func TestScaleOwners(t *testing.T) {
	const scaleVersion = "autoscaling/v1"
	r, store := newScale(t, rules{})
	for _, tc := range []struct {
		name    string
		version string
		stored  []metav1.ManagedFieldsEntry
		// seen is the managedFields that the request reads from the scale, sent is what it
		// writes.
		seen, sent []metav1.ManagedFieldsEntry
		want       []metav1.ManagedFieldsEntry
	}{
		{"kept", "v1",
			[]metav1.ManagedFieldsEntry{applier("a", "v1", purposeToo)},
			[]metav1.ManagedFieldsEntry{applier("a", scaleVersion, inScale)},
			[]metav1.ManagedFieldsEntry{applier("a", scaleVersion, inScale)},
			[]metav1.ManagedFieldsEntry{applier("a", "v1", purposeToo)}},
		{"taken", "v1",
			[]metav1.ManagedFieldsEntry{applier("a", "v1", purposeToo)},
			[]metav1.ManagedFieldsEntry{applier("a", scaleVersion, inScale)},
			[]metav1.ManagedFieldsEntry{autoscaler(scaleVersion, inScale)},
			[]metav1.ManagedFieldsEntry{applier("a", "v1", purpose), autoscaler("v1", inV1)}},
		{"taken through the other version", "v2",
			[]metav1.ManagedFieldsEntry{applier("a", "v1", purposeToo)},
			[]metav1.ManagedFieldsEntry{applier("a", scaleVersion, inScale)},
			[]metav1.ManagedFieldsEntry{autoscaler(scaleVersion, inScale)},
			[]metav1.ManagedFieldsEntry{applier("a", "v1", purpose), autoscaler("v2", inV2)}},
		{"taken from the other version", "v1",
			[]metav1.ManagedFieldsEntry{applier("a", "v2", inV2), applier("b", "v1", purpose)},
			[]metav1.ManagedFieldsEntry{applier("a", scaleVersion, inScale)},
			[]metav1.ManagedFieldsEntry{autoscaler(scaleVersion, inScale)},
			[]metav1.ManagedFieldsEntry{applier("b", "v1", purpose), autoscaler("v1", inV1)}},
		{"shared", "v2",
			[]metav1.ManagedFieldsEntry{applier("a", "v1", inV1)},
			[]metav1.ManagedFieldsEntry{applier("a", scaleVersion, inScale)},
			[]metav1.ManagedFieldsEntry{applier("a", scaleVersion, inScale), autoscaler(scaleVersion, inScale)},
			[]metav1.ManagedFieldsEntry{applier("a", "v1", inV1), autoscaler("v2", inV2)}},
		{"of nobody", "v1",
			[]metav1.ManagedFieldsEntry{applier("b", "v1", purpose)},
			nil,
			[]metav1.ManagedFieldsEntry{autoscaler(scaleVersion, inScale)},
			[]metav1.ManagedFieldsEntry{applier("b", "v1", purpose), autoscaler("v1", inV1)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			create(t, store, tc.name, tc.stored...)
			info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _,
				old runtime.Object) (runtime.Object, error) {
				scale := old.DeepCopyObject().(*autoscalingv1.Scale)
				if diff := cmp.Diff(tc.seen, sorted(scale.ManagedFields)); diff != "" {
					t.Errorf("owners that the request finds (-want +got):\n%s", diff)
				}
				scale.Spec.Replicas, scale.ManagedFields = 5, tc.sent
				return scale, nil
			})
			if _, _, err := r.Update(in(t, tc.version), tc.name, info, nil, nil, false,
				&metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, sorted(get(t, store, tc.name).ManagedFields)); diff != "" {
				t.Errorf("owners that are stored (-want +got):\n%s", diff)
			}
		})
	}
}

// sorted returns the entries ordered by manager.
func sorted(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	return slices.SortedFunc(slices.Values(entries), func(a,
		b metav1.ManagedFieldsEntry) int {
		return strings.Compare(a.Manager, b.Manager)
	})
}

// TestScaleOwnersUnreadable: managedFields that cannot be decoded are an error. Dropping them
// would let any client take ownership of the fields.
func TestScaleOwnersUnreadable(t *testing.T) {
	r, store := newScale(t, rules{})
	create(t, store, "g", applier("a", "v1", inV1))
	info := change(func(s *autoscalingv1.Scale) {
		s.Spec.Replicas = 5
		s.ManagedFields = []metav1.ManagedFieldsEntry{applier("a", "autoscaling/v1", "not JSON")}
	})
	_, _, err := r.Update(in(t, "v1"), "g", info, nil, nil, false, &metav1.UpdateOptions{})
	if err == nil || !strings.HasPrefix(err.Error(), "owners of the scaled object: ") {
		t.Errorf("got error %v, want one about the owners", err)
	}
	if got := *get(t, store, "g").Spec.Precision; got != 2 {
		t.Errorf("precision after the error: got %d, want 2 as before", got)
	}
}
