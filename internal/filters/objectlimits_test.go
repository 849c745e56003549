// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
)

// TestLimitObjects checks that metadata that the library would validate for minutes is rejected,
// and that existing metadata may stay.
func TestLimitObjects(t *testing.T) {
	many := func(n int, name string) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf(name, i))
		}
		return names
	}
	labels := map[string]string{}
	for _, name := range many(200, "%d?") {
		labels[name] = ""
	}
	managers := func(n int) metav1.ObjectMeta {
		return metav1.ObjectMeta{ManagedFields: make([]metav1.ManagedFieldsEntry, n)}
	}
	notes := func(n int) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Annotations: map[string]string{}}
		for i := range n {
			m.Annotations[fmt.Sprintf("a%d", i)] = ""
		}
		return m
	}
	owners := make([]metav1.OwnerReference, 3)
	for i := range owners[:2] {
		yes := true
		owners[i].Controller = &yes
	}
	const good = "example.com/f%d"
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(gvk, &metav1.PartialObjectMetadata{})
	p := Patches{schemas: managedfields.NewDeducedTypeConverter()}
	for name, tc := range map[string]struct {
		object, old metav1.ObjectMeta
		want        string
	}{
		"most": {metav1.ObjectMeta{Finalizers: many(maxMetadata, good)}, metav1.ObjectMeta{}, ""},
		"too many": {metav1.ObjectMeta{Finalizers: many(maxMetadata+1, good)}, metav1.ObjectMeta{},
			"metadata.finalizers: Too many: 5001: must have at most 5000 items"},
		"too many, as before": {metav1.ObjectMeta{Finalizers: many(maxMetadata+1, good)},
			metav1.ObjectMeta{Finalizers: many(maxMetadata+1, good)}, ""},
		"too many owners": {metav1.ObjectMeta{OwnerReferences: make([]metav1.OwnerReference, maxMetadata+1)},
			metav1.ObjectMeta{}, "metadata.ownerReferences: Too many"},
		"too many managers": {metav1.ObjectMeta{ManagedFields: make([]metav1.ManagedFieldsEntry, maxMetadata+1)},
			metav1.ObjectMeta{}, "metadata.managedFields: Too many"},
		"many that are invalid": {metav1.ObjectMeta{Labels: labels}, metav1.ObjectMeta{},
			"metadata: Forbidden: there are 100 more errors"},
		// The library reports these.
		"few that are invalid": {metav1.ObjectMeta{Finalizers: []string{"?"}}, metav1.ObjectMeta{}, ""},
		"a long list": {managers(maxList + 1), metav1.ObjectMeta{},
			"a list would have 10001 elements, and the limit is 10000"},
		"a long map":            {notes(maxList + 1), metav1.ObjectMeta{}, "a map would have 10001 entries, and the limit is 10000"},
		"a long map, as before": {notes(maxList + 1), notes(maxList + 1), ""},
		"a longer list":         {managers(maxList + 2), managers(maxList + 1), "a list would have 10002 elements"},
		"a long list, as before": {metav1.ObjectMeta{Finalizers: many(maxList+1, good)},
			metav1.ObjectMeta{Finalizers: many(maxList+1, good)}, ""},
		"a long name": {metav1.ObjectMeta{Name: strings.Repeat("<", maxText+1)}, metav1.ObjectMeta{},
			"metadata.name: Forbidden: a string has 1025 bytes, and the limit is 1024"},
		"a long owner": {metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Name: strings.Repeat("<",
			1<<20)}}}, metav1.ObjectMeta{}, "metadata.ownerReferences: Forbidden"},
		"a long label": {metav1.ObjectMeta{Labels: map[string]string{"a": strings.Repeat("<", 1<<20)}},
			metav1.ObjectMeta{}, "metadata.labels: Forbidden"},
		"two controllers": {metav1.ObjectMeta{OwnerReferences: owners}, metav1.ObjectMeta{},
			`metadata.ownerReferences: Invalid value: "2 controllers"`},
		"one controller": {metav1.ObjectMeta{OwnerReferences: owners[1:]}, metav1.ObjectMeta{}, ""},
	} {
		for operation, old := range map[admission.Operation]runtime.Object{admission.Create: nil,
			admission.Update: &metav1.PartialObjectMetadata{ObjectMeta: tc.old}} {
			if operation == admission.Create && len(tc.old.Finalizers)+len(tc.old.ManagedFields)+len(tc.old.Annotations) > 0 {
				continue
			}
			a := admission.NewAttributesRecord(&metav1.PartialObjectMetadata{ObjectMeta: tc.object}, old, gvk, "", "",
				schema.GroupVersionResource{}, "", operation, nil, false, nil)
			limits := limitObjects{admission.NewChainHandler(), &p}
			err := limits.Admit(t.Context(), a, admission.NewObjectInterfacesFromScheme(scheme))
			if !limits.Handles(operation) || tc.want == "" && err != nil || tc.want != "" &&
				(!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s, %s: got %.300v, want %q", name, operation, err, tc.want)
			}
		}
	}
}

// recordingPlugin is an admission plugin that handles deletions only.
type recordingPlugin struct {
	*admission.Handler
	called []string
}

func (p *recordingPlugin) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	p.called = append(p.called, "admit")
	return nil
}

func (p *recordingPlugin) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	p.called = append(p.called, "validate")
	return nil
}

// TestLimitObjectsCallsPlugins checks that plugins are called for the operations that they handle.
func TestLimitObjectsCallsPlugins(t *testing.T) {
	for operation, want := range map[admission.Operation]string{admission.Delete: "[admit validate]",
		admission.Create: "[]"} {
		plugin := &recordingPlugin{Handler: admission.NewHandler(admission.Delete)}
		limits := limitObjects{plugin, nil}
		a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{},
			"", operation, nil, false, nil)
		for _, err := range []error{limits.Admit(t.Context(), a, nil), limits.Validate(t.Context(), a, nil)} {
			if err != nil {
				t.Errorf("%s: %v", operation, err)
			}
		}
		if got := fmt.Sprint(plugin.called); got != want {
			t.Errorf("%s: got the calls %s, want %s", operation, got, want)
		}
	}
}
