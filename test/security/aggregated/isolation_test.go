// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
)

// secret is in the name of each object of the namespace in which the tenant has no permissions,
// and in none of its own.
const secret = "their-secret"

// tenant has all permissions in the namespace own and none in theirs.
type tenant struct {
	own, theirs string
	// foreign is a continue token of a list of theirs.
	foreign string
}

func newTenant(t *testing.T, who *user.DefaultInfo) tenant {
	t.Helper()
	n := tenant{own: shared.NewNamespace(t), theirs: shared.NewNamespace(t)}
	for _, name := range []string{"a", "b", "c"} {
		newWidget(t, shared, n.own, name)
		newWidget(t, shared, n.theirs, secret+"-"+name)
	}
	allow(t, shared, ofUser(who.Name), n.own, everything)
	page := admin(t, shared).Must(t, http.MethodGet, widgetsOf(n.theirs)+"?limit=1", nil, nil)
	n.foreign = continued(t, page.Body)
	return n
}

func continued(t *testing.T, list []byte) string {
	t.Helper()
	var meta metav1.PartialObjectMetadataList
	if err := json.Unmarshal(list, &meta); err != nil || meta.Continue == "" {
		t.Fatalf("a page without a token to continue: %v: %.300s", err, list)
	}
	return meta.Continue
}

// attack is a request of the tenant that must not access objects of theirs. The status may differ
// between kube-apiserver and the server's own port.
type attack struct {
	name, method, path string
	media              types.PatchType
	body               []byte
	status             []int
}

func (n tenant) attacks(t *testing.T, server envtest.Endpoint) []attack {
	own, theirs := widgetsOf(n.own), widgetsOf(n.theirs)
	all := current + "/widgets"
	item := theirs + "/" + secret + "-a"
	foreign := "continue=" + url.QueryEscape(n.foreign)
	ownToken := "continue=" + url.QueryEscape(continued(t,
		server.Must(t, http.MethodGet, own+"?limit=1", nil, nil).Body))
	no, bad := []int{403}, []int{400}
	// An encoded separator remains in one path segment: a name that no object has, or a namespace
	// without permissions.
	rejections := []int{400, 403, 404}
	body := widgetJSON(n.theirs, "intruder")
	merge := types.MergePatchType
	return []attack{
		{"list all", "GET", all, "", nil, no},
		{"list all by field", "GET", all + "?fieldSelector=metadata.namespace=" + n.own, "", nil, no},
		{"list all by name", "GET", all + "?fieldSelector=metadata.name=" + secret + "-a", "", nil, no},
		{"list all by label", "GET", all + "?labelSelector=a=b", "", nil, no},
		{"watch all", "GET", all + "?watch=1&timeoutSeconds=1", "", nil, no},
		{"watch all, old form", "GET", current + "/watch/widgets?timeoutSeconds=1", "", nil, no},
		{"list theirs", "GET", theirs, "", nil, no},
		{"list theirs, only empty pages", "GET", theirs + "?limit=1&labelSelector=a=b", "", nil, no},
		{"watch theirs", "GET", theirs + "?watch=1&timeoutSeconds=1", "", nil, no},
		{"get", "GET", item, "", nil, no},
		{"get the status", "GET", item + "/status", "", nil, no},
		{"get the scale", "GET", item + "/scale", "", nil, no},
		{"console", "GET", item + "/console", "", nil, no},
		{"create", "POST", theirs, "", body, no},
		{"update", "PUT", item, "", widgetJSON(n.theirs, secret+"-a"), no},
		{"patch", "PATCH", item, merge, []byte(`{"metadata":{"labels":{"x":"y"}}}`), no},
		{"delete", "DELETE", item, "", nil, no},
		{"delete all of theirs", "DELETE", theirs, "", nil, no},
		{"delete all of all", "DELETE", all, "", nil, no},
		{"own namespace, their field", "GET", own + "?fieldSelector=metadata.namespace=" + n.theirs, "", nil,
			[]int{200, 400}},
		{"own namespace, their name", "GET", own + "?fieldSelector=metadata.name=" + secret + "-a", "",
			nil, []int{200}},
		{"delete in own namespace by their field", "DELETE", own + "?fieldSelector=metadata.namespace=" + n.theirs, "",
			nil, []int{200, 400}},
		{"delete in own namespace by their name", "DELETE", own + "?fieldSelector=metadata.name=" + secret + "-b", "",
			nil, []int{200}},
		{"create with their namespace in the body", "POST", own, "", body, bad},
		{"update with their namespace in the body", "PUT", own + "/a", "", widgetJSON(n.theirs, "a"), bad},
		{"patch that moves to their namespace", "PATCH", own + "/a", merge,
			[]byte(`{"metadata":{"namespace":"` + n.theirs + `"}}`), []int{400, 422}},
		{"apply with their namespace", "PATCH", own + "/intruder?fieldManager=x", types.ApplyYAMLPatchType, body, bad},
		{"their token in own namespace", "GET", own + "?limit=1&" + foreign, "", nil, []int{200, 400}},
		{"own token in their namespace", "GET", theirs + "?limit=1&" + ownToken, "", nil, no},
		{"own token for all", "GET", all + "?limit=500&" + ownToken, "", nil, no},
		{"their namespace as a parameter", "GET", own + "?namespace=" + n.theirs, "", nil, []int{200}},
		{"up and down", "GET", own + "/../../" + n.theirs + "/widgets", "", nil, rejections},
		{"up and down, encoded", "GET", own + "/..%2f..%2f" + n.theirs + "%2fwidgets", "", nil, rejections},
		{"up and down, dots encoded", "GET", own + "/%2e%2e/%2e%2e/" + n.theirs + "/widgets", "", nil, rejections},
		{"namespace with a slash", "GET", current + "/namespaces/" + n.own + "%2f..%2f" + n.theirs + "/widgets",
			"", nil, rejections},
		{"name with their namespace", "GET", own + "/..%2f" + n.theirs + "%2f" + secret + "-a", "", nil, rejections},
		{"name with their namespace by field", "GET", own + "?fieldSelector=metadata.name=" +
			url.QueryEscape("../"+n.theirs+"/"+secret+"-a"), "", nil, []int{200, 400}},
		{"watch by a name with their namespace", "GET", own + "?timeoutSeconds=1&watch=1&fieldSelector=metadata.name=" +
			url.QueryEscape("../"+n.theirs+"/"+secret+"-a"), "", nil, []int{200, 400}},
		{"namespace with a part of the name", "GET", current + "/namespaces/" + n.theirs[:len(n.theirs)-1] +
			"/widgets", "", nil, no},
		{"empty namespace", "GET", current + "/namespaces//widgets", "", nil, rejections},
	}
}

// TestS23Isolation checks that a user with permissions in one namespace reads and changes no
// object of another. It uses kube-apiserver, and the server's own port without kube-apiserver's
// help.
func TestS23Isolation(t *testing.T) {
	who := &user.DefaultInfo{Name: unique("tenant")}
	n := newTenant(t, who)
	theirs := func() string {
		return string(admin(t, shared).Must(t, http.MethodGet, widgetsOf(n.theirs), nil, nil).Body)
	}
	before := itemsOf(t, theirs())
	for way, server := range map[string]envtest.Endpoint{"aggregator": through(t, shared, who),
		"direct": direct(t, shared, who)} {
		t.Run(way, func(t *testing.T) {
			// The tenant's permissions are real: the same requests in its own namespace succeed.
			server.Must(t, http.MethodGet, widgetsOf(n.own), nil, nil)
			server.Must(t, http.MethodGet, widgetsOf(n.own)+"/a", nil, nil)
			for _, a := range n.attacks(t, server) {
				t.Run(a.name, func(t *testing.T) {
					var header http.Header
					if a.media != "" {
						header = media(a.media)
					}
					got := server.Do(t, a.method, a.path, header, a.body)
					if !slices.Contains(a.status, got.Status) {
						t.Errorf("%s %s: %s, want %v", a.method, a.path, got, a.status)
					}
					// An error may repeat what the tenant itself sent.
					if got.Status/100 == 2 && bytes.Contains(got.Body, []byte(`"name":"`+secret)) {
						t.Errorf("%s %s gave away an object: %s", a.method, a.path, got)
					}
				})
			}
			if diff := cmp.Diff(before, itemsOf(t, theirs())); diff != "" {
				t.Errorf("the objects of the other namespace changed (-before +after):\n%s", diff)
			}
		})
	}
	t.Run("watch", func(t *testing.T) { watchesOwnOnly(t, n, who) })
}

// watchesOwnOnly checks that a watch in the tenant's namespace shows no object of another, in any
// order of writes.
func watchesOwnOnly(t *testing.T, n tenant, who *user.DefaultInfo) {
	resp := through(t, shared, who).Open(t, http.MethodGet, widgetsOf(n.own)+"?watch=1&timeoutSeconds=60", nil, nil)
	defer resp.Body.Close()
	newWidget(t, shared, n.theirs, secret+"-late")
	newWidget(t, shared, n.own, "late")
	decoder := json.NewDecoder(resp.Body)
	for {
		var event struct{ Object metav1.PartialObjectMetadata }
		if err := decoder.Decode(&event); err != nil {
			t.Fatalf("the watch ended before it had shown the own object: %v", err)
		}
		if event.Object.Namespace != n.own {
			t.Errorf("the watch showed %s/%s", event.Object.Namespace, event.Object.Name)
		}
		if event.Object.Name == "late" {
			return
		}
	}
}

// itemsOf returns the names and resource versions in a list.
func itemsOf(t *testing.T, list string) []string {
	t.Helper()
	var items metav1.PartialObjectMetadataList
	if err := json.NewDecoder(strings.NewReader(list)).Decode(&items); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, item := range items.Items {
		all = append(all, item.Name+" "+item.ResourceVersion)
	}
	return all
}
