// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

const (
	jsonType, protobufType = "application/json", "application/vnd.kubernetes.protobuf"
	table, metadata        = ";as=Table;g=meta.k8s.io;v=v1", ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	largeObjects           = "/apis/workshop.example.com/v1/namespaces/large/widgets"
	allWidgets             = "/apis/workshop.example.com/v1/widgets"
	smallObjects           = "/apis/workshop.example.com/v1/namespaces/small/widgets"
	escapedObjects         = "/apis/workshop.example.com/v1/namespaces/escaped/widgets"
	annotatedObjects       = "/apis/workshop.example.com/v1/namespaces/annotated/widgets"
	// largeCount objects have 640 kB. escapedCount objects have the same size, and six times that
	// as JSON. smallCount objects have 600 bytes. annotatedCount objects have 5,000 annotations and
	// 60 parts, for which the version v1alpha1 has annotations too.
	largeCount     = 30
	escapedCount   = 6
	smallCount     = 6000
	annotatedCount = 20
)

// request is a request to kube-apiserver.
type request struct {
	method, path, accept, contentType string
	body                              []byte
	// timeout is the time after which the client cancels the request. Default: never.
	timeout time.Duration
	// upgrade also makes it an upgrade request.
	upgrade bool
	// ranges is the header Range. Default: none.
	ranges string
}

// client is a user's client of kube-apiserver.
type client struct {
	http, http1 *http.Client
	base        string
}

func clientOf(t *testing.T, config *rest.Config) client {
	t.Helper()
	config.DisableCompression = true
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	config.NextProtos = []string{"http/1.1"} // in which connections can be upgraded
	c1, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c1.CloseIdleConnections)
	return client{c, c1, config.Host}
}

// send returns the status code, or 0 if the client cancelled the request, and the number of bytes
// in the response.
func (c client) send(ctx context.Context, r request) (status, size int, err error) {
	if r.timeout > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, r.timeout)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return 0, 0, err
	}
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	if r.ranges != "" {
		req.Header.Set("Range", r.ranges)
	}
	sender := c.http
	if r.upgrade {
		sender = c.http1
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "nothing")
	}
	resp, err := sender.Do(req)
	if err != nil {
		if r.timeout > 0 && ctx.Err() != nil {
			err = nil
		}
		return 0, 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if r.timeout > 0 && ctx.Err() != nil {
		err = nil
	}
	return resp.StatusCode, int(n), err
}

// widget returns a Widget with so many bytes of annotations and of conditions, which repeat char.
func widget(name string, annotations, conditions int, char string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `{"apiVersion":"workshop.example.com/v1","kind":"Widget","metadata":{"name":%q,"annotations":{"a":""`, name)
	for i := range annotations / 500 {
		fmt.Fprintf(&b, `,"a%d":"%s"`, i, strings.Repeat(char, 490))
	}
	b.WriteString(`}},"spec":{"model":"pendulum"},"status":{"replicas":0,"conditions":[`)
	for i := range conditions / 30_000 {
		fmt.Fprintf(&b, `%s{"type":"C%d","status":"True","reason":"A","lastTransitionTime":"2026-01-01T00:00:00Z","message":%q}`,
			strings.Repeat(",", min(i, 1)), i, strings.Repeat(char, 30_000))
	}
	b.WriteString("]}}")
	return []byte(b.String())
}

// annotated returns a Widget that is costly to convert to v1alpha1.
func annotated(name string) []byte {
	annotations, parts := make([]string, 5_000), make([]string, 60)
	for i := range annotations {
		annotations[i] = fmt.Sprintf(`"a%d":""`, i)
	}
	for i := range parts {
		parts[i] = fmt.Sprintf(`{"name":"p%d","quantity":1,"material":"m"}`, i)
	}
	return object(name, `,"annotations":{`+strings.Join(annotations, ",")+`}`,
		`,"spec":{"model":"pendulum","parts":[`+strings.Join(parts, ",")+`]}`)
}

// managed returns a Widget with as many field managers as it may have.
func managed(name string) []byte {
	managers := make([]string, 4_900)
	for i := range managers {
		managers[i] = fmt.Sprintf(`{"manager":"m%d","operation":"Apply","apiVersion":"workshop.example.com/v1",`+
			`"time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:model":{}}}}`, i)
	}
	return object(name, `,"managedFields":[`+strings.Join(managers, ",")+`]`, `,"spec":{"model":"pendulum"}`)
}

// fillNamespaces creates the objects as the writer, and waits until the server knows their size.
func fillNamespaces(t *testing.T, admin kubernetes.Interface, writer client) {
	t.Helper()
	for _, name := range []string{"large", "small", "escaped", "annotated"} {
		if _, err := admin.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	must := func(status, _ int, err error) {
		if err != nil || status >= 300 {
			t.Errorf("create an object: %d %v", status, err)
		}
	}
	fill := func(path string, count int, char string) {
		for i := range count {
			name := fmt.Sprintf("w%d", i)
			must(writer.send(t.Context(), request{method: http.MethodPost, path: path, contentType: jsonType,
				body: widget(name, 240_000, 0, char)}))
			must(writer.send(t.Context(), request{method: http.MethodPut, path: path + "/" + name + "/status",
				contentType: jsonType,
				body:        widget(name, 240_000, 400_000, char)}))
		}
	}
	fill(largeObjects, largeCount, "x")
	fill(escapedObjects, escapedCount, "<")
	for i := range annotatedCount {
		must(writer.send(t.Context(), request{method: http.MethodPost, path: annotatedObjects, contentType: jsonType,
			body: annotated(fmt.Sprintf("w%d", i))}))
	}
	must(writer.send(t.Context(), request{method: http.MethodPost, path: annotatedObjects, contentType: jsonType,
		body: managed("managed")}))
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range smallCount / 8 {
				must(writer.send(t.Context(), request{method: http.MethodPost, path: smallObjects,
					contentType: jsonType,
					body:        widget(fmt.Sprintf("s%d-%d", w, i), 0, 0, "")}))
			}
		})
	}
	all.Wait()
	filledVersion = currentVersion(t)
	must(writer.send(t.Context(), request{method: http.MethodPost, path: smallObjects, contentType: jsonType,
		body: widget("last", 0, 0, "")}))
	shared.Eventually(t, "the server to know how large its objects are", envtest.WaitTimeout,
		func(context.Context) error {
			for _, sample := range metrics(t)["apiserver_resource_size_estimate_bytes"] {
				if sample.Metric["resource"] == "widgets" && sample.Value > (largeCount+escapedCount)*600_000 {
					return nil
				}
			}
			return fmt.Errorf("apiserver_resource_size_estimate_bytes is not what was created")
		})
}

// costlyUsers returns a user who may read the API and one who may do everything with it. It also
// creates the objects that they use.
func costlyUsers(t *testing.T) (reader, writer client) {
	t.Helper()
	admin := shared.Client(t)
	group := []string{gadgets.Group}
	allow(t, admin, "quiet", rbacv1.PolicyRule{APIGroups: group, Resources: []string{"widgets"},
		Verbs: []string{"list"}}, listsConfigMaps)
	reads := rbacv1.PolicyRule{APIGroups: group, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}
	writes := rbacv1.PolicyRule{APIGroups: group, Resources: []string{"*"}, Verbs: []string{"*"}}
	reader, writer = clientOf(t, shared.User(t, "costly-reader", reads)),
		clientOf(t, shared.User(t, "costly-writer", writes))
	filled.Do(func() { fillNamespaces(t, admin, writer) })
	return reader, writer
}

// currentVersion returns the resourceVersion of the widgets.
func currentVersion(t *testing.T) string {
	t.Helper()
	list, err := dynamic.NewForConfigOrDie(shared.Admin(t)).Resource(
		gadgets.GroupVersion().WithResource("widgets")).List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	return list.GetResourceVersion()
}

var (
	// filled runs once to create the objects, which all tests share.
	filled sync.Once
	// filledVersion is the resourceVersion of the small objects before the last change.
	filledVersion string
)

func get(path, accept string) func(int) request {
	return func(int) request { return request{method: http.MethodGet, path: path, accept: accept} }
}

func deleteAll(path, accept string) func(int) request {
	return func(int) request {
		return request{method: http.MethodDelete, path: path + "?dryRun=All", accept: accept}
	}
}

// object returns a Widget as JSON, with additional metadata and other fields.
func object(name, metadata, rest string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"workshop.example.com/v1","kind":"Widget","metadata":{"name":%q%s}%s}`, name,
		metadata, rest)
}

func create(body []byte) func(int) request {
	return func(int) request {
		return request{method: http.MethodPost, path: smallObjects, contentType: jsonType, body: body}
	}
}

func patchOf(contentType string, body []byte) func(int) request {
	path := smallObjects + "/s0-0?fieldManager=costly"
	if strings.Contains(contentType, "apply") {
		path += "&force=true"
	}
	return func(int) request {
		return request{method: http.MethodPatch, path: path, contentType: contentType, body: body}
	}
}

// large returns a request for one of the large objects.
func large(i int, method, suffix, contentType string, body []byte) request {
	return request{method: method, path: fmt.Sprintf("%s/w%d%s", largeObjects, i%largeCount, suffix),
		contentType: contentType, body: body}
}

// many returns n values with commas between them.
func many(value string, n int) string { return strings.Repeat(value+",", n-1) + value }

// distinct returns n different strings whose order is not that of their numbers.
func distinct(n int) string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf(`"example.com/%x"`, uint64(i)*0x9e3779b97f4a7c15)
	}
	return strings.Join(texts, ",")
}

// nestedValue returns a string in depth nested objects, between other text.
func nestedValue(before string, depth, size int, after string) []byte {
	return []byte(before + strings.Repeat(`{"a":`, depth) + `"` + strings.Repeat("x", size) + `"` +
		strings.Repeat("}", depth) + after)
}

// owners returns n owner references with additional fields. UID in more is replaced by the index;
// otherwise all have the same UID.
func owners(n int, more string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","name":"p%d","uid":""%s}`, i,
			strings.ReplaceAll(more, "UID", fmt.Sprint(i)))
	}
	return strings.Join(all, ",")
}

// emptyParts returns a Widget in protobuf, with n elements of two bytes.
func emptyParts(n int) []byte {
	spec := append([]byte{0x0a, 1, 'm'}, bytes.Repeat([]byte{0x2a, 0}, n)...)
	raw := append(binary.AppendUvarint([]byte{0x12}, uint64(len(spec))), spec...)
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "workshop.example.com/v1", Kind: "Widget"},
		Raw: raw}
	data, err := unknown.Marshal()
	if err != nil {
		panic(err) // never an error
	}
	return append([]byte("k8s\x00"), data...)
}

// someWrites is the number of requests of each kind that store a large object. The watch cache
// keeps written objects for 75 s. The sum over all kinds must be far below the number in
// SECURITY.md that exhausts the memory.
const someWrites = 8

// costlyReads and costlyWrites are requests whose cost is far above their size, and how many are
// sent at a time.
var (
	costlyReads = map[string]costlyRequest{
		"list":               {40, get(largeObjects, jsonType)},
		"list, protobuf":     {40, get(largeObjects, protobufType)},
		"list, pretty":       {40, get(largeObjects+"?pretty=1", jsonType)},
		"list, table, pages": {40, get(largeObjects+"?limit=36&includeObject=Object", jsonType+table)},
		"get, pretty":        {200, get(largeObjects+"/w1?pretty=1", jsonType)},
		"get, YAML":          {200, get(largeObjects+"/w1", "application/yaml")},
		"list, YAML":         {40, get(largeObjects+"?limit=1", "application/yaml")},
		"list, old version":  {40, get(strings.Replace(smallObjects, "/v1/", "/v1alpha1/", 1), jsonType)},
		"list, exact": {40, func(int) request {
			return request{method: http.MethodGet, path: largeObjects + "?resourceVersionMatch=Exact&resourceVersion=" +
				filledVersion, accept: jsonType}
		}},
		"list, table":              {40, get(largeObjects, jsonType+table)},
		"list, table with objects": {40, get(largeObjects+"?includeObject=Object", jsonType+table)},
		"list, metadata":           {40, get(largeObjects, jsonType+metadata)},
		"list, metadata, protobuf": {40, get(largeObjects, protobufType+metadata)},
		"list, small, table":       {40, get(smallObjects, jsonType+table)},
		"list, small, metadata":    {40, get(smallObjects, jsonType+metadata)},
		"get":                      {200, get(largeObjects+"/w1", jsonType)},
		"get, table":               {200, get(largeObjects+"/w1?includeObject=Object", jsonType+table)},
		"watch":                    {200, get(largeObjects+"?watch=1&timeoutSeconds=4", jsonType)},
		"watch, table with objects": {200, get(largeObjects+"?watch=1&timeoutSeconds=4&includeObject=Object",
			jsonType+table)},
		"watch, other zero": {200, get(largeObjects+"?watch=1&timeoutSeconds=4&resourceVersion=00",
			jsonType)},
		"watch, long query": {200, get(largeObjects+"?watch=1&timeoutSeconds=4&resourceVersion=1000000000&"+
			strings.Repeat("a", 50_000), jsonType)},
		"OpenAPI": {40, get("/openapi/v2", jsonType)},
		"OpenAPI, ranges": {40, func(int) request {
			return request{method: http.MethodGet, path: "/openapi/v3/apis/workshop.example.com/v1", accept: jsonType,
				ranges: "bytes=0-0" + strings.Repeat(",0-0", 25_000)}
		}},
		"escaped, list":               {40, get(escapedObjects, jsonType)},
		"escaped, list by name":       {200, get(escapedObjects+"?fieldSelector=metadata.name%3Dw1", jsonType)},
		"escaped, list of one":        {200, get(escapedObjects+"?limit=1", jsonType)},
		"annotated, old version":      {200, get(strings.Replace(annotatedObjects, "/v1/", "/v1alpha1/", 1), jsonType)},
		"media types":                 {200, get("/apis/workshop.example.com/v1", strings.Repeat("a/a;a=a,", 12_000))},
		"escaped, list, pretty":       {40, get(escapedObjects+"?pretty=1", jsonType)},
		"escaped, table with objects": {40, get(escapedObjects+"?includeObject=Object", jsonType+table)},
		"escaped, metadata":           {40, get(escapedObjects, jsonType+metadata)},
		"escaped, get":                {200, get(escapedObjects+"/w1", jsonType)},
		"escaped, get, table":         {200, get(escapedObjects+"/w1?includeObject=Object", jsonType+table)},
		"escaped, watch":              {200, get(escapedObjects+"?watch=1&timeoutSeconds=4", jsonType)},
	}
	costlyWrites = map[string]costlyRequest{
		"one more manager": {40, func(i int) request {
			return request{method: http.MethodPatch, path: fmt.Sprintf("%s/managed?dryRun=All&force=true&fieldManager=x%d",
				annotatedObjects, i), contentType: "application/apply-patch+yaml",
				body: object("managed", "", `,"spec":{"model":"pendulum","replicas":2}`)}
		}},
		"patch with many managers": {40, func(i int) request {
			return request{method: http.MethodPatch, path: annotatedObjects + "/managed?dryRun=All",
				contentType: "application/merge-patch+json", body: fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, i)}
		}},
		"delete all":          {40, deleteAll(largeObjects, jsonType)},
		"delete all, table":   {40, deleteAll(largeObjects, jsonType+table)},
		"delete all, YAML":    {8, deleteAll(largeObjects, "application/yaml")},
		"escaped, delete all": {40, deleteAll(escapedObjects, jsonType)},
		"escaped, patch": {40, func(i int) request {
			return request{method: http.MethodPatch, path: fmt.Sprintf("%s/w%d?dryRun=All&pretty=1", escapedObjects,
				i%escapedCount),
				contentType: "application/merge-patch+json", body: fmt.Appendf(nil,
					`{"metadata":{"labels":{"a":"%d"}}}`, i)}
		}},
		"long name, pretty": {40, func(int) request {
			return request{method: http.MethodPost, path: smallObjects + "?pretty=1&dryRun=All", contentType: jsonType,
				body: object(strings.Repeat("<", 2_900_000), "", `,"spec":{"model":"a"}`)}
		}},
		"long value": {8, create(object("x", "", `,"spec":{"model":"`+strings.Repeat("<", 2_900_000)+`"}`))},
		"long owner": {8, create(object("x", `,"ownerReferences":[{"apiVersion":"v1","kind":"K","uid":"u","name":"`+
			strings.Repeat("<", 1_400_000)+`"}]`, `,"spec":{"model":"a"}`))},
		"long kind": {8, create([]byte(`{"apiVersion":"workshop.example.com/v1","kind":"` +
			strings.Repeat("<", 2_900_000) + `"}`))},
		"conditions, invalid": {8, func(int) request {
			conditions := make([]string, 9_900)
			for i := range conditions {
				conditions[i] = fmt.Sprintf(`{"type":"%d"}`, i)
			}
			return request{method: http.MethodPut, path: smallObjects + "/s0-0/status?dryRun=All",
				contentType: jsonType,
				body: object("s0-0", "", `,"spec":{"model":"pendulum"},"status":{"conditions":[`+strings.Join(
					conditions, ",")+`]}`)}
		}},
		"elements":          {8, create(object("x", "", `,"spec":{"parts":[`+many("{}", 1_000_000)+`]}`))},
		"elements, fewer":   {8, create(object("x", "", `,"spec":{"parts":[`+many("{}", 9_999)+`]}`))},
		"elements, unknown": {8, create(object("x", "", `,"x":[`+many("1", 1_500_000)+`]`))},
		"fields":            {8, create(object("x", "", `,"x":{`+many(`"a":1`, 500_000)+`}`))},
		"elements, protobuf": {8, func(int) request {
			return request{method: http.MethodPost, path: smallObjects, contentType: protobufType,
				body: emptyParts(1_500_000)}
		}},
		"fewer, protobuf": {8, func(int) request {
			return request{method: http.MethodPost, path: smallObjects, contentType: protobufType,
				body: emptyParts(9_999)}
		}},
		"finalizers":           {8, create(object("x", `,"finalizers":[`+many(`""`, 9_999)+"]", ""))},
		"finalizers, distinct": {8, create(object("x", `,"finalizers":[`+distinct(9_999)+"]", ""))},
		"annotations": {8, create(object("x", `,"annotations":{`+strings.ReplaceAll(distinct(200_000), `",`,
			`":"",`)+`:""}`, ""))},
		"annotations, fewer": {8, create(object("x", `,"annotations":{`+strings.ReplaceAll(distinct(29_999), `",`,
			`":"",`)+`:""}`, ""))},
		"owners": {8, create(object("x", `,"ownerReferences":[`+owners(9_999, "")+"]", ""))},
		"upgrade": {8, func(int) request {
			r := create(object("x", "", `,"spec":{"parts":[`+many("{}", 1_000_000)+`]}`))(0)
			r.upgrade = true
			return r
		}},
		"upgrade, YAML": {40, func(int) request {
			return request{method: http.MethodGet, path: largeObjects, accept: "application/yaml", upgrade: true}
		}},
		"controllers": {8, create(object("x", `,"ownerReferences":[`+owners(499,
			`,"uid":"UID","controller":true`)+"]", ""))},
		"merge patch": {8, patchOf("application/merge-patch+json",
			[]byte(`{"x":[`+many("1", 1_500_000)+`]}`))},
		"strategic merge patch": {8, patchOf("application/strategic-merge-patch+json",
			[]byte(`{"x":[`+many("1", 1_500_000)+`]}`))},
		"JSON patch": {8, patchOf("application/json-patch+json",
			[]byte(`[{"op":"add","path":"/x","value":[`+many("1", 1_250_000)+`]},`+
				many(`{"op":"add","path":"/x/0","value":1}`, 9_000)+`]`))},
		"apply": {8, patchOf("application/apply-patch+yaml",
			object("s0-0", `,"finalizers":[`+distinct(9_999)+"]", ""))},
		"conditions, equal": {8, func(int) request {
			return request{method: http.MethodPut, path: smallObjects + "/s0-0/status", contentType: jsonType,
				body: object("s0-0", "", `,"spec":{"model":"pendulum"},"status":{"conditions":[`+many(
					"{}", 9_999)+`]}`)}
		}},
		"patch of a large object": {someWrites, func(i int) request {
			return large(i, http.MethodPatch, "", "application/merge-patch+json",
				fmt.Appendf(nil, `{"metadata":{"labels":{"a":"%d"}}}`, i))
		}},
		"strategic patch of a large object": {someWrites, func(i int) request {
			return large(i, http.MethodPatch, "/status", "application/strategic-merge-patch+json",
				fmt.Appendf(nil, `{"status":{"conditions":[{"type":"C0","reason":"B%d"}]}}`, i))
		}},
		"JSON patch of a large object": {40, func(i int) request {
			return large(i, http.MethodPatch, "?dryRun=All", "application/json-patch+json",
				fmt.Appendf(nil, `[{"op":"add","path":"/metadata/labels","value":{"a":"%d"}}]`, i))
		}},
		"apply to a large object": {someWrites, func(i int) request {
			return large(i, http.MethodPatch, "?fieldManager=costly", "application/apply-patch+yaml",
				object(fmt.Sprintf("w%d", i%largeCount), fmt.Sprintf(`,"labels":{"a":"%d"}`, i), ""))
		}},
		"scale of a large object": {someWrites, func(i int) request {
			return large(i, http.MethodPatch, "/scale", "application/merge-patch+json",
				fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, i))
		}},
		"update of a large object": {someWrites, func(i int) request {
			return large(i, http.MethodPut, "", jsonType, widget(fmt.Sprintf("w%d", i%largeCount), 240_000, 0, "x"))
		}},
		"delete a large object": {40, func(i int) request {
			return large(i, http.MethodDelete,
				"?dryRun=All", "", nil)
		}},
		"nested merge patch": {8, patchOf("application/merge-patch+json", nestedValue(`{"x":`, 300, 2_900_000, "}"))},
		"nested merge patch, shorter": {40, patchOf("application/merge-patch+json",
			nestedValue(`{"x":`, 300, 100_000, "}"))},
		"nested JSON patch": {8, patchOf("application/json-patch+json", fmt.Appendf(nil,
			`[{"op":"add","path":"/x","value":%s},{"op":"add","path":"/x%s/b","value":1}]`,
			nestedValue("", 300, 2_800_000, ""), strings.Repeat("/a", 298)))},
		"nested JSON patch, shorter": {20, patchOf("application/json-patch+json", fmt.Appendf(nil,
			`[{"op":"add","path":"/x","value":%s},{"op":"add","path":"/x%s/b","value":1}]`,
			nestedValue("", 300, 100_000, ""), strings.Repeat("/a", 298)))},
		"long field, repeated": {8, create(object("x", "", `,"`+strings.Repeat("x", 2_800_000)+`":{`+
			many(`"a":1`, 120)+`}`))},
		"long field, shorter, repeated": {40, create(object("x", "", `,"`+strings.Repeat("x", 65_000)+`":{`+
			many(`"a":1`, 120)+`}`))},
		"client goes away": {40, func(int) request {
			r := create(object("x", "", `,"x":{`+many(`"a":1`, 240_000)+`}`))(0)
			r.path, r.timeout = r.path+"?timeout=1s", 200*time.Millisecond
			return r
		}},
	}
)

type costlyRequest struct {
	parallel int
	request  func(i int) request
}

// TestCosts checks that the server, with the memory limit of the manifests, survives requests
// whose cost is far above their size. Meanwhile it serves another user, and afterwards it stops
// work on those requests. In short mode, it sends every third kind of request.
func TestCosts(t *testing.T) {
	reader, writer := costlyUsers(t)
	run := func(user client, kind string, all map[string]costlyRequest) {
		for i, name := range slices.Sorted(maps.Keys(all)) {
			t.Run(kind+"/"+name, func(t *testing.T) {
				if testing.Short() && i%3 > 0 {
					t.Skip("skipped in short mode, which sends every third kind of request")
				}
				survives(t, user, all[name])
			})
		}
	}
	run(reader, "read", costlyReads)
	run(writer, "write", costlyWrites)
}

// brokenOff is the status of a response that the server aborted in favor of other users.
const brokenOff = -1

func survives(t *testing.T, user client, sent costlyRequest) {
	least := time.Second
	if testing.Short() {
		least /= 4
		if sent.parallel > 16 {
			sent.parallel /= 4 // with 10 lists as Tables, a server without limits has 600 MiB
		}
	}
	server := shared.Servers[0]
	if err := server.ResetVmHWM(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*envtest.WaitTimeout)
	defer cancel()
	began, done := time.Now(), make(chan string)
	var mutex sync.Mutex
	statuses, size := map[int]int{}, 0
	var all sync.WaitGroup
	for i := range sent.parallel {
		all.Go(func() {
			status, n, err := user.send(ctx, sent.request(i))
			mutex.Lock()
			defer mutex.Unlock()
			if err != nil {
				status = brokenOff
			}
			statuses[status]++
			size += n
		})
	}
	go func() {
		all.Wait()
		<-time.After(time.Until(began.Add(least))) // another user lists meanwhile
		close(done)
	}()
	survived(t, done, func() string {
		return fmt.Sprintf("%d at a time in %s: %v, %d MiB", sent.parallel, time.Since(began).Round(time.Millisecond),
			statuses, size>>20)
	})
	shared.Eventually(t, "the server to do nothing", envtest.WaitTimeout, func(ctx context.Context) error {
		used, err := cpuDuring(ctx, t, least)
		if err == nil && used > least/2 {
			err = fmt.Errorf("it uses %s of CPU in %s", used, least)
		}
		return err
	})
}

// TestLargeWrites checks that a user who updates a large object repeatedly is slowed down, and
// that the versions in the watch cache do not exhaust the memory.
func TestLargeWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped in short mode: the watch cache keeps what is written, and later tests would have less memory")
	}
	_, writer := costlyUsers(t)
	statuses := map[int]int{}
	for i := range 500 {
		status, _, err := writer.send(t.Context(), large(1, http.MethodPatch, "", "application/merge-patch+json",
			fmt.Appendf(nil, `{"metadata":{"labels":{"a":"%d"}}}`, i)))
		if err != nil {
			t.Fatal(err)
		}
		statuses[status]++
	}
	t.Logf("statuses %v, peak %d MiB", statuses, peakMemory(t)>>10)
	if statuses[http.StatusOK] == 0 || statuses[http.StatusTooManyRequests] == 0 {
		t.Errorf("got the statuses %v, want some 200 and then 429", statuses)
	}
	if killed, err := container.killed(); killed > 0 || err != nil {
		t.Errorf("the kernel killed %d processes: %v", killed, err)
	}
}

// peakMemory returns VmHWM in KiB without file pages, which the kernel reclaims when it needs
// memory.
func peakMemory(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", serverPID(t), "status"))
	if err != nil {
		t.Fatalf("the server is gone: %v", err)
	}
	values := map[string]int{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		var kib int
		if _, err := fmt.Sscan(value, &kib); err == nil {
			values[name] = kib
		}
	}
	return values["VmHWM"] - values["RssFile"]
}

// serverPID returns the PID of the process in the control group.
func serverPID(t *testing.T) string {
	t.Helper()
	processes, err := os.ReadFile(filepath.Join(container.dir, "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(processes))
}

// cpuDuring returns the CPU time that the server uses within wait.
func cpuDuring(ctx context.Context, t *testing.T, wait time.Duration) (time.Duration, error) {
	t.Helper()
	before, err := cpuTime(t)
	if err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(wait):
	}
	after, err := cpuTime(t)
	return after - before, err
}

// cpuTime returns the CPU time of the server so far: utime and stime of proc_pid_stat(5), in ticks
// of 10 ms.
func cpuTime(t *testing.T) (time.Duration, error) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", serverPID(t), "stat"))
	if err != nil {
		return 0, err
	}
	_, afterName, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(afterName)
	if len(fields) < 13 {
		return 0, fmt.Errorf("read /proc/PID/stat: got %q", data)
	}
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0, err
	}
	return time.Duration(user+system) * 10 * time.Millisecond, nil
}
