// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/extension-apiserver/pkg/envtest"
)

// newEngines makes engines that differ, and returns the path of their collection.
func newEngines(t *testing.T, namespace string, names ...string) string {
	t.Helper()
	client := engineCase.client(t, adminConfig(t, shared), namespace)
	for i, name := range names {
		obj := engineCase.object(t, name)
		// The replicas are in the order opposite to the names.
		if err := unstructured.SetNestedField(obj.Object, int64(len(names)-i), "spec", "replicas"); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return engineCase.path(namespace)
}

// TestEngineTableRows: the cells are the object's, and with them comes as much of the object as the client asks for.
func TestEngineTableRows(t *testing.T) {
	server, namespace := aggregator(t, shared), newNamespace(t, shared)
	path := newEngines(t, namespace, "a", "b")
	var whole struct{ Items []map[string]any }
	if err := json.Unmarshal(server.get(t, path, forms[0].accept("")).body, &whole); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ query, kind string }{
		{"", "PartialObjectMetadata"}, // what kubectl get asks for
		{"?includeObject=Metadata", "PartialObjectMetadata"},
		{"?includeObject=Object", "Engine"},
		{"?includeObject=None", ""},
	} {
		table := tableOf(t, server.get(t, path+tc.query, forms[0].accept(asTable)).body)
		for i, name := range []string{"a", "b"} {
			row := table.Rows[i]
			if !regexp.MustCompile(`^\d+s$`).MatchString(row.Cells[5].(string)) {
				t.Errorf("age %v, want seconds", row.Cells[5])
			}
			row.Cells[5] = "age"
			if diff := cmp.Diff([]any{name, "pendulum", "Standard", float64(2 - i), float64(0), "age", float64(2)}, row.Cells); diff != "" {
				t.Errorf("cells with %q (-want +got):\n%s", tc.query, diff)
			}
			var want, got map[string]any
			if tc.kind != "" {
				want = whole.Items[i]
				want["kind"], want["apiVersion"] = tc.kind, engineCase.resource.GroupVersion().String()
				if tc.kind != "Engine" {
					want = map[string]any{"kind": tc.kind, "apiVersion": "meta.k8s.io/v1", "metadata": whole.Items[i]["metadata"]}
				}
			}
			if row.Object.Raw != nil {
				if err := json.Unmarshal(row.Object.Raw, &got); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("object with %q (-want +got):\n%s", tc.query, diff)
			}
		}
	}
	a := server.do(t, http.MethodGet, path+"?includeObject=Everything", forms[0].accept(asTable), nil)
	if s := statusOf(t, a); a.status != http.StatusBadRequest || s.Reason != metav1.StatusReasonBadRequest ||
		!strings.Contains(s.Message, `includeObject`) || !strings.Contains(s.Message, `Everything`) {
		t.Errorf("includeObject=Everything: %d %+v, want 400 BadRequest that names the parameter and its value", a.status, s)
	}
}

// TestEngineTablePages: a table is a list as any other: its pages can be followed, and a watch begun at its resource version.
func TestEngineTablePages(t *testing.T) {
	server := aggregator(t, shared)
	path := newEngines(t, newNamespace(t, shared), "a", "b", "c")
	var names []string
	var version, token string
	for page := range 3 {
		table := tableOf(t, server.get(t, path+"?limit=1&continue="+url.QueryEscape(token), forms[0].accept(asTable)).body)
		if len(table.Rows) != 1 {
			t.Fatalf("page %d has %d rows, want 1", page, len(table.Rows))
		}
		names = append(names, table.Rows[0].Cells[0].(string))
		if page == 0 {
			version = table.ResourceVersion
		}
		if table.ResourceVersion != version || version == "" {
			t.Errorf("page %d: resource version %q, want that of the first page, %q", page, table.ResourceVersion, version)
		}
		token = table.Continue
		if left := int64(2 - page); left == 0 {
			if token != "" || table.RemainingItemCount != nil {
				t.Errorf("last page: continue %q, remaining %v; want none", token, table.RemainingItemCount)
			}
		} else if token == "" || table.RemainingItemCount == nil || *table.RemainingItemCount != left {
			t.Fatalf("page %d: continue %q, remaining %v; want some and %d", page, token, table.RemainingItemCount, left)
		}
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, names); diff != "" {
		t.Errorf("names on the pages (-want +got):\n%s", diff)
	}
}

// TestEngineTableWatch: kubectl get -w gets the headings once, then rows, and the end of what was there before.
func TestEngineTableWatch(t *testing.T) {
	server, namespace := aggregator(t, shared), newNamespace(t, shared)
	path := newEngines(t, namespace, "a")
	events := forms[0].watch(t, server, path+"?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", asTable)
	row := func(event map[string]any) map[string]any {
		t.Helper()
		rows, _, _ := unstructured.NestedSlice(event, "rows")
		if len(rows) != 1 {
			t.Fatalf("event has the rows %v, want one", rows)
		}
		return rows[0].(map[string]any)
	}
	added := events.next(t, watch.Added)
	if columns, _, _ := unstructured.NestedSlice(added, "columnDefinitions"); len(columns) != len(engineSurface.columns) || added["kind"] != "Table" {
		t.Errorf("first event: %v with %d columns, want a Table with %d", added["kind"], len(columns), len(engineSurface.columns))
	}
	if cells := row(added)["cells"].([]any); cells[0] != "a" {
		t.Errorf("first event is about %v, want a", cells[0])
	}
	end, _, _ := unstructured.NestedString(row(events.next(t, watch.Bookmark)), "object", "metadata", "annotations", metav1.InitialEventsAnnotationKey)
	if end != "true" {
		t.Errorf("bookmark: annotation %s is %q, want true", metav1.InitialEventsAnnotationKey, end)
	}
	client := engineCase.client(t, adminConfig(t, shared), namespace)
	if _, err := client.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"grade":"Premium"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	modified := events.next(t, watch.Modified)
	if cells := row(modified)["cells"].([]any); cells[2] != "Premium" || modified["columnDefinitions"] != nil {
		t.Errorf("change: grade %v, columns %v; want Premium and no headings again", cells[2], modified["columnDefinitions"])
	}
}

// TestEngineKubectlOutput prints engines in the ways that people and scripts use.
func TestEngineKubectlOutput(t *testing.T) {
	namespace := newNamespace(t, shared)
	newEngines(t, namespace, "a", "b")
	group := engineCase.resource.Group
	for _, tc := range []struct{ args, want string }{
		{"get eng", `^NAME +MODEL +GRADE +DESIRED +READY +AGE\na +pendulum +Standard +2 +0 +\d+s\nb +pendulum +Standard +1 +0 +\d+s\n$`},
		{"get eng -o wide", `^NAME +MODEL +GRADE +DESIRED +READY +AGE +PARTS\na .* 2\nb .* 2\n$`},
		{"get eng --no-headers", `^a .*\nb .*\n$`},
		{"get eng --sort-by=.spec.replicas", `^NAME .*\nb .*\na .*\n$`},
		{"get eng -o name", `^engine\.` + group + `/a\nengine\.` + group + `/b\n$`},
		{"get eng -o jsonpath={.items[*].metadata.name}", `^a b$`},
		{"get eng -o custom-columns=N:.metadata.name,R:.spec.replicas", `^N +R\na +2\nb +1\n$`},
		{"get eng --show-labels", `^NAME .* LABELS\na .* <none>\n`},
		{"get eng -A --field-selector=metadata.namespace=" + namespace, `^NAMESPACE +NAME +MODEL .*\n` + namespace + ` +a .*\n` + namespace + ` +b .*\n$`},
		{"get engines." + group + " a", `^NAME .*\na .*\n$`},
		{"get engines.v1." + group + "/a", `^NAME .*\na .*\n$`},
		{"get fixture", `(?m)^(engine\.` + group + `/)?a .*$`},
	} {
		stdout, stderr, err := envtest.Kubectl{}.Run(t.Context(), shared, append([]string{"--namespace=" + namespace}, strings.Fields(tc.args)...)...)
		if err != nil || !regexp.MustCompile(tc.want).MatchString(stdout) {
			t.Errorf("kubectl %s: %v\n%s%s\nwant %s", tc.args, err, stdout, stderr, tc.want)
		}
	}
}
