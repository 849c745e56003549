// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"encoding/json"
	"net/http"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// kindOf checks that a body has the apiVersion and kind that an apply patch needs.
func kindOf(body func(*testing.T) []byte) func(*testing.T) []byte {
	return func(t *testing.T) []byte {
		data := body(t)
		var head struct{ APIVersion, Kind string }
		if err := json.Unmarshal(data, &head); err != nil || head.APIVersion == "" || head.Kind == "" {
			t.Fatalf("no kind in %s (%v)", data, err)
		}
		return data
	}
}

// upgrade returns the headers of a WebSocket handshake, as of a client of a console.
func upgrade() http.Header {
	return http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key":      {"AQIDBAUGBwgJCgsMDQ4PEA=="},
		"Sec-Websocket-Protocol": {"v5.channel.k8s.io"},
	}
}

// widgetSubresources returns the rows of /status, /scale and /console.
func (s checkObjects) widgetSubresources(gv schema.GroupVersion) []check {
	object := "/apis/" + gv.String() + "/namespaces/" + s.namespace + "/widgets/" + s.widget
	var rows []check
	for _, sub := range []struct {
		name      string
		jsonPatch string
		merge     string
		apply     func(*testing.T) []byte
	}{
		{"status", `[{"op":"add","path":"/status/observedGeneration","value":1}]`,
			`{"status":{"observedGeneration":1}}`,
			text(`{"apiVersion":%q,"kind":"Widget","metadata":{"name":%q},"status":{"observedGeneration":1}}`,
				gv, s.widget)},
		{"scale", `[{"op":"replace","path":"/spec/replicas","value":2}]`, `{"spec":{"replicas":2}}`,
			text(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":%q},"spec":{"replicas":2}}`,
				s.widget)},
	} {
		path := object + "/" + sub.name
		row := func(verb, method, query string, header http.Header, body func(*testing.T) []byte) check {
			return check{
				version: gv.Version, resource: "widgets/" + sub.name, verb: verb, method: method, path: path + query,
				header: header, body: body, status: 200,
				want: one(resourceCheck(gv, verb, "widgets", sub.name, s.namespace, s.widget)),
			}
		}
		rows = append(rows,
			row("get", "GET", "", nil, nil),
			row("update", "PUT", "", nil, same(path)),
			row("update", "PUT", "?dryRun=All", nil, same(path)),
			row("patch", "PATCH", "", media(types.JSONPatchType), text("%s", sub.jsonPatch)),
			row("patch", "PATCH", "", media(types.MergePatchType), text("%s", sub.merge)),
			row("patch", "PATCH", "", media(types.StrategicMergePatchType), text("%s", sub.merge)),
			row("patch", "PATCH", applyQuery, media(types.ApplyYAMLPatchType), sub.apply),
			row("patch", "PATCH", "?dryRun=All", media(types.MergePatchType), text("%s", sub.merge)),
		)
	}
	console := func(verb string) authorizationv1.SubjectAccessReviewSpec {
		return resourceCheck(gv, verb, "widgets", "console", s.namespace, s.widget)
	}
	// A WebSocket starts with a GET; to act through it, a client needs more than the permission to
	// read.
	both := []authorizationv1.SubjectAccessReviewSpec{console("get"), console("create")}
	rows = append(rows,
		check{version: gv.Version, resource: "widgets/console", verb: "get", method: "GET", path: object + "/console",
			header: upgrade(), status: 101, want: both},
		check{version: gv.Version, resource: "widgets/console", verb: "get", method: "GET", path: object + "/console",
			status: 400, want: both},
		check{version: gv.Version, resource: "widgets/log", verb: "get", method: "GET", path: object + "/log", status: 200,
			want: one(resourceCheck(gv, "get", "widgets", "log", s.namespace, s.widget))},
		check{version: gv.Version, resource: "widgets/calibrate", verb: "create", method: "POST",
			path: object + "/calibrate?dryRun=All", body: text(`{"reason":"it drifts"}`), status: 201,
			want: one(resourceCheck(gv, "create", "widgets", "calibrate", s.namespace, s.widget))},
	)
	return rows
}

// clusterScoped returns the rows of the cluster-scoped kinds.
func (s checkObjects) clusterScoped() []check {
	gv := install.GroupVersions()[0]
	base := "/apis/" + gv.String() + "/gadgets"
	gadget, created := base+"/"+s.gadget, s.gadget+"-created"
	row := func(verb, method, path, name string, header http.Header, body func(*testing.T) []byte, status int) check {
		return check{
			version: gv.Version, resource: "gadgets", verb: verb, method: method, path: path, header: header,
			body: body, status: status,
			want: one(resourceCheck(gv, verb, "gadgets", "", "", name)),
		}
	}
	merge := text(`{"metadata":{"annotations":{"by":"security"}}}`)
	applied := row("patch", "PATCH", base+"/"+created+"-2"+applyQuery, created+"-2", media(types.ApplyYAMLPatchType),
		copyOf(gadget, created+"-2"), 201)
	applied.want = append(applied.want, resourceCheck(gv, "create", "gadgets", "", "", created+"-2"))
	// A review supports only create, and a dry run is checked in the same way.
	review := check{
		version: gv.Version, resource: "identityreviews", verb: "create", method: "POST", path: "/apis/" + gv.String() +
			"/identityreviews",
		body: text("%s", reviewJSON), status: 201, want: one(
			resourceCheck(gv, "create", "identityreviews", "", "", "")),
	}
	dry := review
	dry.path += "?dryRun=All"
	selected := row("deletecollection", "DELETE", base+"?fieldSelector=metadata.name="+created+"-2", "", nil, nil, 200)
	selected.want = one(selecting(selected.want[0], nameIs(created+"-2"), nil))
	part := func(verb, path, name string) check {
		return check{version: gv.Version, resource: "parts", verb: verb, method: "GET",
			path: "/apis/" + gv.String() + "/parts" + path, status: 200,
			want: one(resourceCheck(gv, verb, "parts", "", "", name))}
	}
	return []check{
		part("get", "/bolt", "bolt"),
		part("list", "", ""),
		part("watch", "?watch=1&timeoutSeconds=30", ""),
		row("create", "POST", base, "", nil, copyOf(gadget, created), 201),
		row("get", "GET", gadget, s.gadget, nil, nil, 200),
		row("list", "GET", base, "", nil, nil, 200),
		row("watch", "GET", base+"?watch=1&timeoutSeconds=30", "", nil, nil, 200),
		row("update", "PUT", gadget, s.gadget, nil, same(gadget), 200),
		row("patch", "PATCH", gadget, s.gadget, media(types.MergePatchType), merge, 200),
		applied,
		row("delete", "DELETE", base+"/"+created, created, nil, nil, 200),
		selected,
		review, dry,
	}
}
