// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"example.com/extension-apiserver/pkg/registry"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// Representations of a response.
const (
	inJSON       = "application/json"
	asTable      = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asMetadata   = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	asMetadatas  = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	watchList    = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	ownerOfBob   = "labelSelector=owner%3Dbob"
	purposeOfBob = "fieldSelector=spec.purpose%3Dclassified"
)

// startOwned starts a server whose users see only the gadgets with their name in the label owner. Ann
// and Bob have gadgets, whose names end with the owner. The purpose of Bob's gadgets is "classified".
func startOwned(t *testing.T) (*shop, *offlineClient) {
	t.Helper()
	system := newShop(false)
	for _, name := range []string{"a-ann", "b-bob", "c-ann", "d-bob", "e-ann"} {
		owner, purpose := "ann", "measure"
		if strings.HasSuffix(name, "bob") {
			owner, purpose = "bob", "classified"
		}
		system.gadgets[name] = newGadget(name, purpose, map[string]string{"owner": owner})
	}
	api := system.api(func(u user.Info, g *v1.Gadget) bool { return g.Labels["owner"] == u.GetName() },
		func(k *registry.Kind[*v1.Gadget]) {
			k.SelectableFields = map[string]func(*v1.Gadget) string{
				"spec.purpose": func(g *v1.Gadget) string { return g.Spec.Purpose },
			}
			k.Subresources = map[string]registry.Subresource[*v1.Gadget]{
				"sharpen": registry.Action(func(_ context.Context, g, _ *v1.Gadget) (*v1.Gadget, error) { return g, nil }),
				"log": registry.Log(func(_ context.Context, g *v1.Gadget, _ *gadgetLogOptions, w io.Writer) error {
					_, err := io.WriteString(w, g.Spec.Purpose)
					return err
				}),
			}
		})
	api.Groups[0].AddToScheme = func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypeWithName(v1.SchemeGroupVersion.WithKind("GadgetLogOptions"), &gadgetLogOptions{})
		return addToScheme(scheme)
	}
	client := startOffline(t, api, func(*serverConfig) {}, nil).client("HTTP/2.0")
	t.Cleanup(client.CloseIdleConnections)
	return system, client
}

// page is a list of gadgets, or a Table.
type page struct {
	Metadata metav1.ListMeta
	Items    []struct{ Metadata metav1.ObjectMeta }
	Rows     []struct{ Object metav1.PartialObjectMetadata }
}

// list returns a list in a representation, and the names of its objects.
func (c *offlineClient) list(t *testing.T, name, query, accept string) (list page, names []string) {
	t.Helper()
	code, body, err := c.send(t.Context(), http.MethodGet, gadgets+"?"+query, "", http.Header{"X-Remote-User": {name},
		"Accept": {accept}})
	if err = errors.Join(err, json.Unmarshal([]byte(body), &list)); err != nil || code != http.StatusOK {
		t.Fatalf("list %s as %s: got %d %v %s", query, accept, code, err, body)
	}
	for _, item := range list.Items {
		names = append(names, item.Metadata.Name)
	}
	for _, row := range list.Rows {
		names = append(names, row.Object.Name)
	}
	if name == "ann" && (strings.Contains(body, "bob") || strings.Contains(body, "classified")) {
		t.Errorf("list %s as %s: Ann sees %s", query, accept, body)
	}
	token, err := base64.RawURLEncoding.DecodeString(list.Metadata.Continue)
	if err != nil || name == "ann" && strings.Contains(string(token), "bob") {
		t.Errorf("list %s as %s: the continue token is %s, %v", query, accept, token, err)
	}
	return list, names
}

// TestVisibleLists checks that lists contain nothing about the objects of other users.
func TestVisibleLists(t *testing.T) {
	_, client := startOwned(t)
	all, _ := client.list(t, "ann", "", inJSON)
	now := "resourceVersion=" + all.Metadata.ResourceVersion
	for _, c := range []struct {
		query string
		want  []string
	}{
		{"", []string{"a-ann", "c-ann", "e-ann"}},
		{"resourceVersion=0", []string{"a-ann", "c-ann", "e-ann"}},
		{now + "&resourceVersionMatch=Exact", []string{"a-ann", "c-ann", "e-ann"}},
		{now + "&resourceVersionMatch=NotOlderThan", []string{"a-ann", "c-ann", "e-ann"}},
		{"labelSelector=owner", []string{"a-ann", "c-ann", "e-ann"}},
		{"labelSelector=owner%21%3Dann", nil},
		{ownerOfBob, nil},
		{"fieldSelector=metadata.name%3Da-ann", []string{"a-ann"}},
		{"fieldSelector=metadata.name%3Db-bob", nil},
		{"fieldSelector=metadata.name%3Db-bob&resourceVersion=0", nil},
		{"fieldSelector=metadata.name%21%3Da-ann", []string{"c-ann", "e-ann"}},
		{purposeOfBob, nil},
		{purposeOfBob + "&limit=1", nil},
	} {
		for _, accept := range []string{inJSON, asTable, asMetadatas} {
			if _, got := client.list(t, "ann", c.query, accept); !cmp.Equal(c.want, got) {
				t.Errorf("list %s as %s: got %v, want %v", c.query, accept, got, c.want)
			}
		}
	}
	if _, got := client.list(t, "bob", "", inJSON); !cmp.Equal([]string{"b-bob", "d-bob"}, got) {
		t.Errorf("Bob sees %v", got)
	}
}

// TestVisiblePages checks that pages and their tokens contain nothing about the objects of other
// users.
func TestVisiblePages(t *testing.T) {
	_, client := startOwned(t)
	remaining := func(list page) int64 {
		if list.Metadata.RemainingItemCount == nil {
			return 0
		}
		return *list.Metadata.RemainingItemCount
	}
	first, names := client.list(t, "ann", "limit=1", inJSON)
	second, more := client.list(t, "ann", "limit=1&continue="+url.QueryEscape(first.Metadata.Continue), inJSON)
	third, last := client.list(t, "ann", "limit=1&continue="+url.QueryEscape(second.Metadata.Continue), inJSON)
	if got := append(append(names, more...), last...); !cmp.Equal([]string{"a-ann", "c-ann", "e-ann"}, got) ||
		third.Metadata.Continue != "" {
		t.Errorf("got the pages %v and then the token %q", got, third.Metadata.Continue)
	}
	if remaining(first) != 2 || remaining(second) != 1 || remaining(third) != 0 {
		t.Errorf("got %d, %d and %d remaining objects, want 2, 1 and 0", remaining(first), remaining(second),
			remaining(third))
	}
	ofBob, _ := client.list(t, "bob", "limit=1", inJSON)
	if ofBob.Metadata.Continue == "" {
		t.Fatal("the list of Bob has no second page")
	}
	for _, limit := range []string{"limit=1&", "limit=10&", ""} {
		list, got := client.list(t, "ann", limit+"continue="+url.QueryEscape(ofBob.Metadata.Continue), inJSON)
		if len(got) == 0 || got[0] != "c-ann" || len(got)+int(remaining(list)) != 2 {
			t.Errorf("%s with the token of Bob: got %v and %d more, want c-ann and e-ann", limit, got, remaining(list))
		}
	}
}

// hiddenRequests are requests for an object NAME that respond as if the object of another user did
// not exist. UID is that of the object.
var hiddenRequests = []struct {
	request, body string
	varies        bool // the response has a time or a random UID
}{
	{request: "GET /NAME"},
	{request: "GET /NAME?resourceVersion=0"},
	{request: "PUT /NAME", body: gadgetJSON("NAME", "weigh", "")},
	{request: "PUT /NAME", body: gadgetJSON("NAME", "weigh", `,"uid":"UID"`)},
	{request: "PUT /NAME", body: gadgetJSON("NAME", "", "")},
	{request: "PUT /NAME?dryRun=All", body: gadgetJSON("NAME", "weigh", "")},
	{request: "MERGE /NAME", body: `{"spec":{"purpose":"weigh"}}`},
	{request: "MERGE /NAME", body: `{"spec":{"precision":9}}`},
	{request: "MERGE /NAME", body: `{}`},
	{request: "MERGE /NAME?dryRun=All", body: `{"spec":{"purpose":"weigh"}}`},
	{request: "DELETE /NAME"},
	{request: "DELETE /NAME?dryRun=All"},
	{request: "DELETE /NAME?propagationPolicy=Foreground"},
	{request: "DELETE /NAME", body: `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"UID"}}`},
	{request: "DELETE /NAME", body: `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"other"}}`},
	{request: "POST /NAME/sharpen", body: gadgetJSON("NAME", "weigh", "")},
	{request: "POST /NAME/sharpen?dryRun=All", body: gadgetJSON("NAME", "weigh", "")},
	{request: "GET /NAME/log"},
	{request: "POST ?dryRun=All", body: gadgetJSON("NAME", "weigh", ""), varies: true},
	{request: "APPLY /NAME?fieldManager=t&dryRun=All", body: gadgetJSON("NAME", "weigh", ""), varies: true},
}

// TestVisibleNames checks that an object of another user is indistinguishable from one that does not
// exist, except that its name cannot be used.
func TestVisibleNames(t *testing.T) {
	system, client := startOwned(t)
	_, ofBob, err := client.sendAs(t.Context(), "bob", "GET /b-bob", "")
	var hidden v1.Gadget
	if err = errors.Join(err, json.Unmarshal([]byte(ofBob), &hidden)); err != nil || hidden.UID == "" {
		t.Fatalf("got %v %s, want the gadget of Bob", err, ofBob)
	}
	send := func(name, request, body string) (int, string) {
		t.Helper()
		replace := strings.NewReplacer("NAME", name, "UID", string(hidden.UID))
		code, got, err := client.sendAs(t.Context(), "ann", replace.Replace(request), replace.Replace(body))
		if err != nil || strings.Contains(got, "classified") || strings.Contains(got, `"owner"`) {
			t.Errorf("%s %s: got %v %s", request, body, err, got)
		}
		return code, strings.ReplaceAll(got, name, "NAME")
	}
	for _, c := range hiddenRequests {
		code, got := send("b-bob", c.request, c.body)
		wantCode, want := send("nobodys", c.request, c.body)
		if code != wantCode || got != want && !c.varies {
			t.Errorf("%s %s: got %d %s, want %d %s as for a missing object", c.request, c.body, code, got, wantCode, want)
		}
	}
	for _, request := range []string{"POST ", "APPLY /NAME?fieldManager=t", "APPLY /NAME?fieldManager=t&force=true"} {
		if code, got := send("b-bob", request, gadgetJSON("NAME", "weigh", "")); code != http.StatusConflict ||
			!strings.Contains(got, `\"NAME\" already exists`) {
			t.Errorf("%s: got %d %s, want 409", request, code, got)
		}
	}
	if calls := system.take(nil); calls != nil {
		t.Errorf("got the calls %v of the source, want none", calls)
	}
	if _, got, err := client.sendAs(t.Context(), "bob", "GET /b-bob", ""); err != nil || got != ofBob {
		t.Errorf("got the gadget %s of Bob, %v, want %s", got, err, ofBob)
	}
}

// TestVisibleDeletions checks that a user deletes a collection without the objects of other users.
func TestVisibleDeletions(t *testing.T) {
	system, client := startOwned(t)
	for _, c := range []struct {
		query string
		calls []string
	}{
		{"?" + ownerOfBob, nil},
		{"?fieldSelector=metadata.name%3Db-bob", nil},
		{"?dryRun=All", nil},
		{"", []string{"delete a-ann", "delete c-ann", "delete e-ann"}},
	} {
		code, got, err := client.sendAs(t.Context(), "ann", "DELETE "+c.query, "")
		if err != nil || code != http.StatusOK || strings.Contains(got, "bob") || strings.Contains(got, "classified") {
			t.Errorf("DELETE %s: got %d %v %s", c.query, code, err, got)
		}
		if diff := cmp.Diff(c.calls, system.take(nil)); diff != "" {
			t.Errorf("DELETE %s: calls of the source (-want +got):\n%s", c.query, diff)
		}
	}
	if _, got := client.list(t, "bob", "", inJSON); !cmp.Equal([]string{"b-bob", "d-bob"}, got) {
		t.Errorf("Bob sees %v", got)
	}
}

// TestVisibleWatches checks that a watch sends an object that a user begins to see as added, one that
// the user no longer sees as deleted in its last visible state, and no other change.
func TestVisibleWatches(t *testing.T) {
	_, client := startOwned(t)
	initial := []string{"ADDED a-ann ann", "ADDED c-ann ann", "ADDED e-ann ann"}
	watches := []struct {
		query, accept string
		initial       []string
		events        <-chan string
	}{
		{"", inJSON, nil, nil},
		{"", asTable, nil, nil},
		{"", asMetadata, nil, nil},
		{"labelSelector=owner", inJSON, nil, nil},
		{"fieldSelector=metadata.name%3Db-bob", inJSON, nil, nil},
		{purposeOfBob, inJSON, nil, nil},
		{watchList, inJSON, initial, nil},
		{watchList, asTable, initial, nil},
		{watchList + "&fieldSelector=metadata.name%3Db-bob", inJSON, nil, nil},
		{watchList + "&" + purposeOfBob, asMetadata, nil, nil},
	}
	for i := range watches {
		watches[i].events = watchNames(t, client, "ann", watches[i].query, watches[i].accept)
	}
	for _, step := range []struct{ user, request, body string }{
		{"bob", "MERGE /b-bob", `{"metadata":{"labels":{"owner":"ann"}}}`},
		{"ann", "MERGE /b-bob", `{"metadata":{"labels":{"owner":"bob"}}}`},
		{"bob", "MERGE /b-bob", `{"spec":{"precision":3}}`},
		{"bob", "DELETE /d-bob", ""},
		{"bob", "POST ", gadgetJSON("f-bob", "classified", `,"labels":{"owner":"bob"}`)},
		{"bob", "MERGE /b-bob", `{"metadata":{"labels":{"owner":"ann"}}}`},
	} {
		if code, body, err := client.sendAs(t.Context(), step.user, step.request, step.body); err != nil || code > 299 {
			t.Fatalf("%s %s: got %d %v %s", step.request, step.body, code, err, body)
		}
	}
	for _, w := range watches {
		want := append(append([]string{}, w.initial...), "ADDED b-bob ann", "DELETED b-bob ann", "ADDED b-bob ann")
		var got []string
		for range want {
			got = append(got, nextName(t, w.events))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("watch %q as %s (-want +got):\n%s", w.query, w.accept, diff)
		}
	}
}
