// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"example.com/extension-apiserver/pkg/envtest"
)

// The names of the targets in the report.
const (
	ours, theirs, custom, builtin = "this kit", "sample-apiserver", "CRD", "ConfigMap"
)

// target is a kind of objects with the same content as those of the other targets.
type target struct {
	name, kind string
	resource   schema.GroupVersionResource
	namespaced bool
	// section and field locate the text of an object that operations change.
	section, field string
	// more is the second field of the section, as JSON.
	more string
	// server serves the kind. It is nil for kube-apiserver.
	server *envtest.Server
}

var sprockets = schema.GroupVersionResource{Group: "benchmark.example.com", Version: "v1", Resource: "sprockets"}

// newTargets starts sample-apiserver, creates the CRD, and returns a target for each kind. The
// gadget and the CRD have the same schema.
func newTargets(t testing.TB, e *envtest.Environment) []*target {
	t.Helper()
	sample, err := e.StartSampleAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	createCRD(t, e)
	return []*target{
		{name: ours, kind: "Gadget", resource: resource, section: "spec", field: "purpose", more: `"precision":2`,
			server: e.Servers[0]},
		{name: theirs, kind: "Flunder", resource: envtest.SampleGroupVersion.WithResource("flunders"), namespaced: true,
			section: "spec", field: "reference", more: `"referenceType":"Flunder"`, server: sample},
		{name: custom, kind: "Sprocket", resource: sprockets, section: "spec", field: "purpose", more: `"precision":2`},
		{name: builtin, kind: "ConfigMap", resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			namespaced: true, section: "data", field: "purpose", more: `"precision":"2"`},
	}
}

// createCRD creates a CRD with the schema, the default and the column of Gadget, and waits until it
// is served.
func createCRD(t testing.TB, e *envtest.Environment) {
	t.Helper()
	client, err := dynamic.NewForConfig(e.Admin(t))
	if err != nil {
		t.Fatal(err)
	}
	spec := map[string]any{"type": "object", "required": []any{"purpose"}, "properties": map[string]any{
		"purpose": map[string]any{"type": "string", "minLength": int64(1), "maxLength": int64(256)},
		"precision": map[string]any{"type": "integer", "format": "int32", "minimum": int64(0), "maximum": int64(6),
			"default": int64(2)},
	}}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": sprockets.GroupResource().String()},
		"spec": map[string]any{
			"group": sprockets.Group, "scope": "Cluster",
			"names": map[string]any{"plural": sprockets.Resource, "singular": "sprocket", "kind": "Sprocket",
				"listKind": "SprocketList"},
			"versions": []any{map[string]any{
				"name": sprockets.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "required": []any{"spec"},
					"properties": map[string]any{"spec": spec}}},
				"additionalPrinterColumns": []any{map[string]any{"name": "Purpose", "type": "string",
					"jsonPath": ".spec.purpose", "description": "Use of the sprocket"}},
			}},
		},
	}}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := client.Resource(crds).Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, "the CRD", envtest.WaitTimeout, func(ctx context.Context) error {
		_, err := client.Resource(sprockets).List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
}

// rules returns permissions for all requests to the targets.
func rules(targets []*target) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, t := range targets {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{t.resource.Group},
			Resources: []string{t.resource.Resource}, Verbs: []string{"*"}})
	}
	return rules
}

// path returns the path of an object, or of the collection if name is empty.
func (t *target) path(name string) string {
	path := "/apis/" + t.resource.GroupVersion().String()
	if t.resource.Group == "" {
		path = "/api/" + t.resource.Version
	}
	if t.namespaced {
		path += "/namespaces/default"
	}
	return strings.TrimSuffix(path+"/"+t.resource.Resource+"/"+name, "/")
}

// object returns an object whose text depends on a number.
func (t *target) object(name string, number int64) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"labels":{"app.kubernetes.io/name":"benchmark",`+
		`"app.kubernetes.io/part-of":"comparison"}},%q:{%q:%q,%s}}`,
		t.resource.GroupVersion(), t.kind, name, t.section, t.field, content(number), t.more)
}

// applied returns a configuration for server-side apply that owns the text of an object.
func (t *target) applied(name string, number int64) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},%q:{%q:%q}}`,
		t.resource.GroupVersion(), t.kind, name, t.section, t.field, content(number))
}

// patch returns a merge patch of the text of an object.
func (t *target) patch(number int64) string {
	return fmt.Sprintf(`{%q:{%q:%q}}`, t.section, t.field, content(number))
}

// content returns 200 bytes.
func content(number int64) string {
	return fmt.Sprintf("%0200d", number)
}

// create, get and the others return requests to a target.
func (t *target) create(name string, number int64) request {
	return request{method: http.MethodPost, path: t.path(""), body: t.object(name, number)}
}

func (t *target) get(name string) request {
	return request{method: http.MethodGet, path: t.path(name)}
}

func (t *target) list(accept, query string) request {
	return request{method: http.MethodGet, path: t.path("") + query, accept: accept}
}

func (t *target) mergePatch(name string, number int64) request {
	return request{method: http.MethodPatch, path: t.path(name), body: t.patch(number),
		contentType: "application/merge-patch+json"}
}

func (t *target) apply(name string, number int64) request {
	return request{method: http.MethodPatch, path: t.path(name) + "?fieldManager=applier&force=true",
		body: t.applied(name, number), contentType: "application/apply-patch+yaml"}
}

func (t *target) delete(name string) request {
	return request{method: http.MethodDelete, path: t.path(name)}
}
