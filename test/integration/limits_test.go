// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestObjectLimits checks that the server rejects an object that would take the library minutes to
// validate. The response contains the reason.
func TestObjectLimits(t *testing.T) {
	const jsonType, patchType, applyType = "application/json", "application/json-patch+json",
		"application/apply-patch+yaml"
	server, namespace := direct(t, shared), shared.NewNamespace(t)
	collection := "/apis/workshop.example.com/v1/namespaces/" + namespace + "/widgets"
	widget := func(metadata, rest string) string {
		return `{"apiVersion":"workshop.example.com/v1","kind":"Widget","metadata":{"name":"w"` + metadata +
			`},"spec":{"model":"pendulum"}` + rest + `}`
	}
	many := func(value func(i int) string, n int) string {
		values := make([]string, n)
		for i := range values {
			values[i] = value(i)
		}
		return "[" + strings.Join(values, ",") + "]"
	}
	same := func(value string) func(int) string { return func(int) string { return value } }
	condition := func(i int) string {
		return fmt.Sprintf(`{"type":"C%d","status":"True","reason":"A","lastTransitionTime":"2026-01-01T00:00:00Z","message":""}`, i)
	}
	conditions := func(value func(int) string, n int) string {
		return widget("", `,"status":{"replicas":0,"conditions":`+many(value, n)+"}")
	}
	finalizer := func(i int) string { return fmt.Sprintf(`"example.com/f%d"`, i) }
	controller := func(i int) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u%d","controller":true}`, i)
	}
	for _, tc := range []struct {
		name, method, path, contentType, body string
		want                                  int
		message                               string
	}{
		{"create", http.MethodPost, "", jsonType, widget("", ""), http.StatusCreated, ""},
		{"many conditions", http.MethodPut, "/w/status", jsonType, conditions(condition, 9999), http.StatusOK, ""},
		{"two more, patched", http.MethodPatch, "/w/status", patchType,
			fmt.Sprintf(`[{"op":"add","path":"/status/conditions/-","value":%s},{"op":"add","path":"/status/conditions/-","value":%s}]`, condition(-1), condition(-2)),
			http.StatusUnprocessableEntity, "a list would have 10001 elements, and the limit is 10000"},
		{"many operations on many conditions", http.MethodPatch, "/w/status", patchType,
			many(same(`{"op":"test","path":"/kind","value":"Widget"}`), 1100),
			http.StatusRequestEntityTooLarge,
			"the number of operations of a JSON patch, 1100, multiplied by the number of elements in the " +
				"longest list of the object, 9999,"},
		{"the same, in a dry run", http.MethodPatch, "/w/status?dryRun=All", patchType,
			many(same(`{"op":"test","path":"/kind","value":"Widget"}`), 1100),
			http.StatusRequestEntityTooLarge, "the number of operations of a JSON patch, 1100,"},
		{"fewer conditions", http.MethodPut, "/w/status", jsonType, conditions(condition, 1), http.StatusOK, ""},
		{"too many conditions", http.MethodPut, "/w/status", jsonType, conditions(condition, 10_001),
			http.StatusRequestEntityTooLarge, "the lists and objects of the body are too long"},
		{"equal conditions", http.MethodPut, "/w/status", jsonType, conditions(same(condition(1)), 9999),
			http.StatusUnprocessableEntity, "duplicate entries for key [type="},
		{"invalid conditions", http.MethodPut, "/w/status", jsonType,
			conditions(func(i int) string { return fmt.Sprintf(`{"type":"C%d"}`, i) }, 500),
			http.StatusUnprocessableEntity, "more errors"},
		{"many owners", http.MethodPut, "/w", jsonType, widget(
			`,"ownerReferences":`+many(same(`{"uid":"","name":"a"}`), 501), ""),
			http.StatusRequestEntityTooLarge, "the body has 501 ownerReferences, and the limit is 500"},
		{"many owners, escaped", http.MethodPut, "/w", jsonType,
			widget(`,"owner\u0052eferences":`+many(same(`{"uid":"","name":"a"}`), 501), ""),
			http.StatusRequestEntityTooLarge, "the body has 501 ownerReferences"},
		{"many annotations", http.MethodPut, "/w", jsonType,
			widget(`,"annotations":{`+strings.Trim(many(func(i int) string { return fmt.Sprintf(`"a%d":""`, i) },
				40_000), "[]")+"}", ""),
			http.StatusRequestEntityTooLarge, "an object of the body has 40000 fields, and the limit is 10000"},
		{"another type in a parameter", http.MethodPut, "/w", jsonType + "; a=protobuf",
			widget("", `,"x":`+many(same("{}"), 10_001)), http.StatusRequestEntityTooLarge, "the lists"},
		{"many finalizers", http.MethodPatch, "/w?dryRun=All&fieldManager=test&force=true", applyType,
			widget(`,"finalizers":`+many(finalizer, 5001), ""), http.StatusUnprocessableEntity,
			"metadata.finalizers: Too many: 5001: must have at most 5000 items"},
		{"controllers", http.MethodPut, "/w", jsonType, widget(`,"ownerReferences":`+many(controller, 2), ""),
			http.StatusUnprocessableEntity, "only one reference can have controller set to true"},
	} {
		response := server.Do(t, tc.method, collection+tc.path, http.Header{"Content-Type": {tc.contentType}},
			[]byte(tc.body))
		var status struct{ Message string }
		if err := json.Unmarshal(response.Body, &status); err != nil {
			t.Fatal(err)
		}
		if response.Status != tc.want || !strings.Contains(status.Message, tc.message) {
			t.Errorf("%s: got %d %.300s, want %d %s", tc.name, response.Status, status.Message, tc.want, tc.message)
		}
	}
}
