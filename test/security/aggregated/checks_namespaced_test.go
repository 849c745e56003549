// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// checkObjects are the objects of the rows.
type checkObjects struct{ namespace, widget, gadget string }

func newCheckObjects(t *testing.T) checkObjects {
	t.Helper()
	s := checkObjects{shared.NewNamespace(t), "w", unique("checked")}
	newWidget(t, shared, s.namespace, s.widget)
	newGadget(t, shared, s.gadget)
	return s
}

func text(format string, args ...any) func(*testing.T) []byte {
	return func(*testing.T) []byte { return fmt.Appendf(nil, format, args...) }
}

func media(kind types.PatchType) http.Header { return http.Header{"Content-Type": {string(kind)}} }

const applyQuery = "?fieldManager=security&force=true"

// widgets returns the rows of the verbs that write.
func (s checkObjects) widgets(gv schema.GroupVersion) []check {
	base := "/apis/" + gv.String() + "/namespaces/" + s.namespace + "/widgets"
	item := base + "/" + s.widget
	reviewOf := func(verb, name string) []authorizationv1.SubjectAccessReviewSpec {
		return one(resourceCheck(gv, verb, "widgets", "", s.namespace, name))
	}
	row := func(verb, method, path string, header http.Header, body func(*testing.T) []byte, status int,
		want []authorizationv1.SubjectAccessReviewSpec) check {
		return check{version: gv.Version, resource: "widgets", verb: verb, method: method, path: path, header: header,
			body: body, status: status, want: want}
	}
	created, applied := "created-"+gv.Version, "applied-"+gv.Version
	annotate := text(`{"metadata":{"annotations":{"by":"security"}}}`)
	jsonPatch := text(`[{"op":"add","path":"/metadata/annotations","value":{"by":"security"}}]`)
	apply := text(`{"apiVersion":%q,"kind":"Widget","metadata":{"name":%q,"labels":{"by":"security"}}}`, gv, s.widget)
	return []check{
		row("create", "POST", base, nil, copyOf(item, created), 201, reviewOf("create", "")),
		row("create", "POST", base+"?dryRun=All", nil, copyOf(item, "never"), 201, reviewOf("create", "")),
		row("update", "PUT", item, nil, same(item), 200, reviewOf("update", s.widget)),
		row("update", "PUT", item+"?dryRun=All", nil, same(item), 200, reviewOf("update", s.widget)),
		// An update creates nothing, so it needs no other check.
		row("update", "PUT", base+"/nobody", nil, copyOf(item, "nobody"), 404, reviewOf("update", "nobody")),
		row("patch", "PATCH", item, media(types.JSONPatchType), jsonPatch, 200, reviewOf("patch", s.widget)),
		row("patch", "PATCH", item, media(types.MergePatchType), annotate, 200, reviewOf("patch", s.widget)),
		row("patch", "PATCH", item, media(types.StrategicMergePatchType), annotate, 200, reviewOf("patch", s.widget)),
		row("patch", "PATCH", item+applyQuery, media(types.ApplyYAMLPatchType), apply, 200, reviewOf("patch", s.widget)),
		row("patch", "PATCH", item+"?dryRun=All", media(types.MergePatchType), annotate, 200, reviewOf("patch", s.widget)),
		row("patch", "PATCH", base+"/nobody", media(types.MergePatchType), annotate, 404, reviewOf("patch", "nobody")),
		// An apply that creates also needs the permission to create.
		row("patch", "PATCH", base+"/"+applied+applyQuery, media(types.ApplyYAMLPatchType),
			kindOf(copyOf(item, applied)), 201,
			append(reviewOf("patch", applied), reviewOf("create", applied)...)),
		row("delete", "DELETE", base+"/"+applied+"?dryRun=All", nil, nil, 200, reviewOf("delete", applied)),
		row("delete", "DELETE", base+"/"+applied, nil, nil, 200, reviewOf("delete", applied)),
		row("delete", "DELETE", base+"/nobody", nil, nil, 404, reviewOf("delete", "nobody")),
		row("deletecollection", "DELETE", base+"?labelSelector=by=nobody&fieldSelector=metadata.name!=x", nil, nil, 200,
			one(selecting(resourceCheck(gv, "deletecollection", "widgets", "", s.namespace, ""),
				[]metav1.FieldSelectorRequirement{{Key: "metadata.name", Operator: metav1.FieldSelectorOpNotIn,
					Values: []string{"x"}}},
				[]metav1.LabelSelectorRequirement{{Key: "by", Operator: metav1.LabelSelectorOpIn,
					Values: []string{"nobody"}}}))),
		row("deletecollection", "DELETE", base+"?dryRun=All", nil, nil, 200, reviewOf("deletecollection", "")),
		row("deletecollection", "DELETE", base+"?labelSelector=!by,none", nil, nil, 200,
			one(selecting(resourceCheck(gv, "deletecollection", "widgets", "", s.namespace, ""), nil,
				[]metav1.LabelSelectorRequirement{
					{Key: "by", Operator: metav1.LabelSelectorOpDoesNotExist},
					{Key: "none", Operator: metav1.LabelSelectorOpExists},
				}))),
	}
}

// widgetReads returns the rows of get, list and watch.
func (s checkObjects) widgetReads(gv schema.GroupVersion) []check {
	prefix := "/apis/" + gv.String()
	base := prefix + "/namespaces/" + s.namespace + "/widgets"
	reviewOf := func(verb, namespace, name string) authorizationv1.SubjectAccessReviewSpec {
		return resourceCheck(gv, verb, "widgets", "", namespace, name)
	}
	row := func(verb, path string, want authorizationv1.SubjectAccessReviewSpec) check {
		return check{version: gv.Version, resource: "widgets", verb: verb, method: "GET", path: path, status: 200,
			want: one(want)}
	}
	byName := []metav1.FieldSelectorRequirement{{Key: "metadata.name", Operator: metav1.FieldSelectorOpIn,
		Values: []string{s.widget}}}
	labels := url.QueryEscape("a=b,c!=d,e in (f,g),h notin (i),j,!k")
	byLabels := []metav1.LabelSelectorRequirement{
		{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: []string{"b"}},
		{Key: "c", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"d"}},
		{Key: "e", Operator: metav1.LabelSelectorOpIn, Values: []string{"f", "g"}},
		{Key: "h", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"i"}},
		{Key: "j", Operator: metav1.LabelSelectorOpExists},
		{Key: "k", Operator: metav1.LabelSelectorOpDoesNotExist},
	}
	const watch = "&watch=1&timeoutSeconds=30"
	rows := []check{
		row("get", base+"/"+s.widget, reviewOf("get", s.namespace, s.widget)),
		row("list", base, reviewOf("list", s.namespace, "")),
		row("list", prefix+"/widgets", reviewOf("list", "", "")),
		row("list", base+"?fieldSelector=metadata.name="+s.widget,
			selecting(reviewOf("list", s.namespace, s.widget), byName, nil)),
		row("list", base+"?labelSelector="+labels, selecting(reviewOf("list", s.namespace, ""), nil, byLabels)),
		row("list", base+"?limit=1", reviewOf("list", s.namespace, "")),
		row("watch", base+"?"+watch, reviewOf("watch", s.namespace, "")),
		row("watch", prefix+"/widgets?"+watch, reviewOf("watch", "", "")),
		row("watch", base+"?fieldSelector=metadata.name="+s.widget+watch,
			selecting(reviewOf("watch", s.namespace, s.widget), byName, nil)),
		row("watch", base+"?labelSelector="+labels+watch, selecting(reviewOf("watch", s.namespace, ""), nil, byLabels)),
		// The old path of watches has no selectors in the check, which then covers more than is
		// read.
		row("watch", prefix+"/watch/namespaces/"+s.namespace+"/widgets?timeoutSeconds=30",
			reviewOf("watch", s.namespace, "")),
		row("watch", prefix+"/watch/namespaces/"+s.namespace+"/widgets/"+s.widget+"?timeoutSeconds=30",
			reviewOf("watch", s.namespace, s.widget)),
		row("watch", prefix+"/watch/widgets?labelSelector=a=b&timeoutSeconds=30", reviewOf("watch", "", "")),
	}
	// An invalid selector restricts nothing: the check is for the whole list.
	bad := row("list", base+"?labelSelector="+url.QueryEscape("a=("), reviewOf("list", s.namespace, ""))
	bad.status = http.StatusBadRequest
	return append(rows, bad)
}
