// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"example.com/extension-apiserver/pkg/registry"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/registry/workshop/gadget"
	validation "example.com/extension-apiserver/sample/validation/workshop"
)

// shop is a system that has gadgets. It stores their names, labels and spec, or all metadata.
type shop struct {
	keepsMetadata bool

	mu      sync.Mutex
	gadgets map[string]*v1.Gadget
	calls   []string // since the last call of take
	fail    error    // of each write
}

func newShop(keepsMetadata bool, all ...*v1.Gadget) *shop {
	s := &shop{keepsMetadata: keepsMetadata, gadgets: map[string]*v1.Gadget{}}
	for _, g := range all {
		s.gadgets[g.Name] = g
	}
	return s
}

func newGadget(name, purpose string, labels map[string]string) *v1.Gadget {
	return &v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: v1.GadgetSpec{Purpose: purpose}}
}

// api returns an API whose gadgets are those of the shop. change modifies the kind.
func (s *shop) api(visible func(user.Info, *v1.Gadget) bool, change func(*registry.Kind[*v1.Gadget])) API {
	kind := gadget.Kind
	kind.Source = registry.Cached[*v1.Gadget]{List: s.list, Visible: visible, KeepsMetadata: s.keepsMetadata,
		Create: func(_ context.Context, obj *v1.Gadget) (*v1.Gadget, error) { return s.put("create", obj) },
		Update: s.update, Version: func(g *v1.Gadget) string { return fmt.Sprint(g.Generation) }, Delete: s.remove}
	change(&kind)
	return withGroup(func(g *Group) {
		g.Kinds, g.Validation = []registry.NewStorage{kind.NewStorage}, validation.AddToScheme
	})
}

func (s *shop) list(context.Context) iter.Seq2[*v1.Gadget, error] {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Values(s.gadgets))
	return func(yield func(*v1.Gadget, error) bool) {
		for _, g := range all {
			if !yield(g, nil) {
				return
			}
		}
	}
}

func (s *shop) put(verb string, g *v1.Gadget) (*v1.Gadget, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	precision := "none"
	if g.Spec.Precision != nil {
		precision = fmt.Sprint(*g.Spec.Precision)
	}
	s.calls = append(s.calls, fmt.Sprintf("%s %s %s/%s", verb, g.Name, g.Spec.Purpose, precision))
	if s.fail != nil {
		return nil, s.fail
	}
	if !s.keepsMetadata {
		g = &v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: g.Name, Labels: g.Labels, Generation: g.Generation}, Spec: g.Spec}
	}
	s.gadgets[g.Name] = g
	return g, nil
}

// update changes a gadget that has the version of old: its generation.
func (s *shop) update(_ context.Context, g, old *v1.Gadget) (*v1.Gadget, error) {
	s.mu.Lock()
	stored := s.gadgets[g.Name]
	s.mu.Unlock()
	if stored != nil && stored.Generation != old.Generation {
		return nil, apierrors.NewConflict(v1.Resource("gadgets"), g.Name, errors.New("the shop has another version"))
	}
	g.Generation = old.Generation + 1
	return s.put("update", g)
}

func (s *shop) remove(_ context.Context, g *v1.Gadget) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, "delete "+g.Name)
	if s.fail != nil {
		return s.fail
	}
	delete(s.gadgets, g.Name)
	return nil
}

// take returns the calls since the last one in alphabetical order, and sets the error of the next
// writes.
func (s *shop) take(fail error) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls, s.fail = nil, fail
	slices.Sort(calls)
	return calls
}

// refusal is an admission plugin that rejects gadgets with the purpose "refused", and the deletion
// of the gadget "kept".
type refusal struct{ *admission.Handler }

func (refusal) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	g, ok := a.GetObject().(*v1.Gadget)
	if ok && g.Spec.Purpose == "refused" || a.GetOperation() == admission.Delete && a.GetName() == "kept" {
		return admission.NewForbidden(a, errors.New("the plugin refuses it"))
	}
	return nil
}

// gadgetJSON returns a gadget. metadata is added to its name.
func gadgetJSON(name, purpose, metadata string) string {
	return fmt.Sprintf(`{"apiVersion":"workshop.example.com/v1","kind":"Gadget","metadata":{"name":%q%s},`+
		`"spec":{"purpose":%q}}`, name, metadata, purpose)
}

// precise adds the precision to a gadget.
func precise(gadget string, precision int) string {
	return strings.Replace(gadget, `"purpose"`, fmt.Sprintf(`"precision":%d,"purpose"`, precision), 1)
}

// patchTypes are the content types of patches, by the methods that tables use for them.
var patchTypes = map[string]types.PatchType{"MERGE": types.MergePatchType, "APPLY": types.ApplyYAMLPatchType}

// sendAs sends a request of the form "METHOD PATH" of a user, where the path is one below that of
// gadgets.
func (c *offlineClient) sendAs(ctx context.Context, name, request, body string) (int, string, error) {
	method, path, _ := strings.Cut(request, " ")
	header := http.Header{"X-Remote-User": {name}, "Content-Type": {"application/json"}}
	if patch, ok := patchTypes[method]; ok {
		method = http.MethodPatch
		header.Set("Content-Type", string(patch))
	}
	return c.send(ctx, method, gadgets+path, body, header)
}

// write is a request, its response, and the calls of the system.
type write struct {
	name, request, body string
	fail                error // of the system
	code                int
	want                string // in the response
	calls               []string
}

func (s *shop) run(t *testing.T, client *offlineClient, writes []write) {
	t.Helper()
	for _, w := range writes {
		s.take(w.fail)
		code, body, err := client.sendAs(t.Context(), "ann", w.request, w.body)
		if err != nil || code != w.code || !strings.Contains(body, w.want) {
			t.Errorf("%s: got %d %v %s, want %d with %q", w.name, code, err, body, w.code, w.want)
		}
		if diff := cmp.Diff(w.calls, s.take(nil)); diff != "" {
			t.Errorf("%s: calls of the source (-want +got):\n%s", w.name, diff)
		}
		if !s.keepsMetadata && w.code < 300 && !strings.Contains(w.request, "dryRun") &&
			strings.Contains(body, "managedFields") {
			t.Errorf("%s: got %s, want no managedFields, which the source does not store", w.name, body)
		}
	}
}

const finalizer = `"finalizers":["example.com/f"]`

// plainWrites are requests for gadgets of a system that stores little metadata. It has the gadgets
// "first" and "kept" with the purpose "measure".
var plainWrites = []write{
	{name: "create", request: "POST ", body: gadgetJSON("second", "weigh", ""), code: 201, want: `"precision":2`,
		calls: []string{"create second weigh/2"}},
	{name: "create an existing name", request: "POST ", body: gadgetJSON("first", "weigh", ""), code: 409,
		want: `\"first\" already exists`},
	{name: "update", request: "PUT /second", body: gadgetJSON("second", "count", ""), code: 200, want: `"count"`,
		calls: []string{"update second count/2"}},
	{name: "update a stale version", request: "PUT /first", body: gadgetJSON("first", "weigh", `,"resourceVersion":"1"`),
		code: 409, want: "the object has been modified"},
	{name: "update a missing object", request: "PUT /none", body: gadgetJSON("none", "weigh", ""), code: 404},
	{name: "merge patch", request: "MERGE /second", body: `{"spec":{"purpose":"time"}}`, code: 200, want: `"time"`,
		calls: []string{"update second time/2"}},
	{name: "merge patch without effect", request: "MERGE /second", body: `{"spec":{"purpose":"time"}}`, code: 200},
	{name: "delete", request: "DELETE /second", code: 200, calls: []string{"delete second"}},
	{name: "delete again", request: "DELETE /second", code: 404, want: `\"second\" not found`},
	{name: "delete with another UID", request: "DELETE /first", code: 409,
		body: `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"x"}}`},
	{name: "delete in the foreground", request: "DELETE /first?propagationPolicy=Foreground", code: 200,
		calls: []string{"delete first"}},
	{name: "create again", request: "POST ", body: gadgetJSON("first", "measure", ""), code: 201,
		calls: []string{"create first measure/2"}},
	{name: "create with a finalizer", request: "POST ", body: gadgetJSON("third", "weigh", ","+finalizer), code: 422,
		want: "the source does not store finalizers"},
	{name: "add a finalizer", request: "MERGE /first", body: `{"metadata":{` + finalizer + `}}`, code: 422,
		want: "the source does not store finalizers"},
	{name: "create the first of a collection", request: "POST ", code: 201,
		body:  gadgetJSON("a", "weigh", `,"labels":{"bin":"2"}`),
		calls: []string{"create a weigh/2"}},
	{name: "create the second of a collection", request: "POST ", code: 201,
		body: gadgetJSON("b", "weigh", `,"labels":{"bin":"2"}`), calls: []string{"create b weigh/2"}},
	{name: "delete a collection", request: "DELETE ?labelSelector=bin%3D2", code: 200, want: `"b"`,
		calls: []string{"delete a", "delete b"}},
	{name: "the others", request: "GET /first", code: 200, want: `"measure"`},
}

// dryRuns are requests that the system does not receive.
var dryRuns = []write{
	{name: "create", request: "POST ?dryRun=All", body: gadgetJSON("third", "weigh", ""), code: 201,
		want: `"precision":2`},
	{name: "create an existing name", request: "POST ?dryRun=All", body: gadgetJSON("first", "weigh", ""), code: 409},
	{name: "update", request: "PUT /first?dryRun=All", body: gadgetJSON("first", "weigh", ""), code: 200, want: `"weigh"`},
	{name: "merge patch", request: "MERGE /first?dryRun=All", body: `{"spec":{"purpose":"weigh"}}`, code: 200,
		want: `"weigh"`},
	{name: "apply", request: "APPLY /third?fieldManager=t&dryRun=All", body: gadgetJSON("third", "weigh", ""), code: 201,
		want: `"weigh"`},
	{name: "delete", request: "DELETE /first?dryRun=All", code: 200},
	{name: "delete all", request: "DELETE ?dryRun=All&labelSelector=bin%21%3D1", code: 200},
	{name: "invalid", request: "POST ?dryRun=All", body: gadgetJSON("third", "", ""), code: 422},
	{name: "refused", request: "POST ?dryRun=All", body: gadgetJSON("third", "refused", ""), code: 403},
	{name: "create with a finalizer", request: "POST ?dryRun=All", body: gadgetJSON("third", "weigh", ","+finalizer),
		code: 422, want: "the source does not store finalizers"},
	{name: "add a finalizer", request: "MERGE /first?dryRun=All", body: `{"metadata":{` + finalizer + `}}`, code: 422,
		want: "the source does not store finalizers"},
	{name: "apply with a finalizer", request: "APPLY /third?fieldManager=t&dryRun=All",
		body: gadgetJSON("third", "weigh", ","+finalizer), code: 422, want: "the source does not store finalizers"},
	{name: "the object that was not created", request: "GET /third", code: 404},
	{name: "the object that was not changed", request: "GET /first", code: 200, want: `"measure"`},
}

// plainApplies are requests of server-side apply. The system does not store who owns a field, so
// the owner of each field is the manager before-first-apply of the library.
var plainApplies = []write{
	{name: "create", request: "APPLY /applied?fieldManager=t", body: precise(gadgetJSON("applied", "apply", ""), 4),
		code: 201, want: `"precision":4`, calls: []string{"create applied apply/4"}},
	{name: "again", request: "APPLY /applied?fieldManager=t", body: precise(gadgetJSON("applied", "apply", ""), 4),
		code: 200, want: `"precision":4`},
	{name: "another value", request: "APPLY /applied?fieldManager=t", body: gadgetJSON("applied", "other", ""),
		code: 409, want: "before-first-apply"},
	{name: "another value with force", request: "APPLY /applied?fieldManager=t&force=true",
		body: precise(gadgetJSON("applied", "other", ""), 4), code: 200, want: `"other"`,
		calls: []string{"update applied other/4"}},
	{name: "a field less", request: "APPLY /applied?fieldManager=t&force=true", body: gadgetJSON("applied", "other", ""),
		code: 200, want: `"precision":4`},
	{name: "invalid", request: "APPLY /invalid?fieldManager=t", body: precise(gadgetJSON("invalid", "apply", ""), 9),
		code: 422, want: "spec.precision"},
	{name: "refused", request: "APPLY /refused?fieldManager=t", body: gadgetJSON("refused", "refused", ""), code: 403,
		want: "the plugin refuses it"},
}

// rejectedWrites are requests that validation or the plugin rejects.
var rejectedWrites = []write{
	{name: "invalid value", request: "POST ", body: precise(gadgetJSON("third", "weigh", ""), 9), code: 422,
		want: "spec.precision"},
	{name: "missing value", request: "POST ", body: gadgetJSON("third", "", ""), code: 422, want: "spec.purpose"},
	{name: "invalid name", request: "POST ", body: gadgetJSON("Third", "weigh", ""), code: 422, want: "metadata.name"},
	{name: "invalid update", request: "PUT /first", body: precise(gadgetJSON("first", "weigh", ""), 9), code: 422,
		want: "spec.precision"},
	{name: "invalid patch", request: "MERGE /first", body: `{"spec":{"precision":9}}`, code: 422, want: "spec.precision"},
	{name: "refused create", request: "POST ", body: gadgetJSON("third", "refused", ""), code: 403,
		want: "the plugin refuses it"},
	{name: "refused update", request: "PUT /first", body: gadgetJSON("first", "refused", ""), code: 403,
		want: "the plugin refuses it"},
	{name: "refused patch", request: "MERGE /first", body: `{"spec":{"purpose":"refused"}}`, code: 403,
		want: "the plugin refuses it"},
	{name: "refused deletion", request: "DELETE /kept", code: 403, want: "the plugin refuses it"},
}

// failedWrites are requests that fail in the system.
var failedWrites = []write{
	{name: "create", request: "POST ", body: gadgetJSON("third", "weigh", ""), fail: errors.New("disk full"), code: 500,
		want: "create gadgets.workshop.example.com at the source: disk full", calls: []string{"create third weigh/2"}},
	{name: "update", request: "PUT /first", body: gadgetJSON("first", "weigh", ""), fail: errors.New("disk full"),
		code: 500, want: "update gadgets.workshop.example.com at the source: disk full",
		calls: []string{"update first weigh/2"}},
	{name: "patch", request: "MERGE /first", body: `{"spec":{"purpose":"weigh"}}`, fail: errors.New("disk full"),
		code: 500, want: "update gadgets.workshop.example.com at the source: disk full",
		calls: []string{"update first weigh/2"}},
	{name: "delete", request: "DELETE /first", fail: errors.New("disk full"), code: 500,
		want: "delete gadgets.workshop.example.com at the source: disk full", calls: []string{"delete first"}},
	{name: "timeout", request: "POST ", body: gadgetJSON("third", "weigh", ""),
		fail: fmt.Errorf("dial: %w", context.DeadlineExceeded), code: 504, want: "which may have been done",
		calls: []string{"create third weigh/2"}},
	{name: "API status", request: "POST ", body: gadgetJSON("third", "weigh", ""),
		fail: apierrors.NewForbidden(v1.Resource("gadgets"), "third", errors.New("no shelf")), code: 403, want: "no shelf",
		calls: []string{"create third weigh/2"}},
	{name: "wrapped API status", request: "MERGE /first", body: `{"spec":{"purpose":"weigh"}}`,
		fail: fmt.Errorf("write: %w", apierrors.NewTooManyRequests("the shop is closed", 7)), code: 429,
		want: `"retryAfterSeconds":7`, calls: []string{"update first weigh/2"}},
	{name: "name that another replica has created", request: "POST ", body: gadgetJSON("third", "weigh", ""),
		fail: apierrors.NewAlreadyExists(v1.Resource("gadgets"), "third"), code: 409, want: `\"third\" already exists`,
		calls: []string{"create third weigh/2"}},
	{name: "the object that was not created", request: "GET /third", code: 404},
	{name: "the object that was not changed", request: "GET /first", code: 200, want: `"measure"`},
	{name: "object that another replica has deleted", request: "DELETE /first",
		fail: apierrors.NewNotFound(v1.Resource("gadgets"), "first"), code: 200, calls: []string{"delete first"}},
}

// TestSourceWrites checks writes of a kind that is not stored in etcd, if its system stores little
// metadata.
func TestSourceWrites(t *testing.T) {
	for _, c := range []struct {
		name   string
		writes []write
	}{
		{"writes", plainWrites}, {"dry runs", dryRuns}, {"apply", plainApplies}, {"rejected", rejectedWrites},
		{"failed", failedWrites},
	} {
		t.Run(c.name, func(t *testing.T) {
			system := newShop(false, newGadget("first", "measure", nil), newGadget("kept", "measure", nil))
			client := startShop(t, system, unchanged)
			system.run(t, client, c.writes)
		})
	}
}

// TestSourceVerbs checks that discovery lists the verbs of the functions that a source has, and that
// requests with other verbs get 405.
func TestSourceVerbs(t *testing.T) {
	functions := []struct {
		name  string
		verbs []string
		unset func(*registry.Cached[*v1.Gadget])
	}{
		{"create", []string{"create"}, func(s *registry.Cached[*v1.Gadget]) { s.Create = nil }},
		{"update", []string{"patch", "update"}, func(s *registry.Cached[*v1.Gadget]) { s.Update = nil }},
		{"delete", []string{"delete", "deletecollection"}, func(s *registry.Cached[*v1.Gadget]) { s.Delete = nil }},
	}
	applied := gadgetJSON("applied", "weigh", "")
	requests := []struct {
		write
		needs string // functions
	}{
		{write{request: "POST ", body: gadgetJSON("new", "weigh", ""), code: 201}, "create"},
		{write{request: "APPLY /applied?fieldManager=t&dryRun=All", body: applied, code: 201}, "create,update"},
		{write{request: "APPLY /applied?fieldManager=t", body: applied, code: 201}, "create,update"},
		{write{request: "PUT /first", body: gadgetJSON("first", "weigh", ""), code: 200}, "update"},
		{write{request: "MERGE /first", body: `{"spec":{"purpose":"count"}}`, code: 200}, "update"},
		{write{request: "APPLY /first?fieldManager=t&force=true", body: gadgetJSON("first", "time", ""), code: 200}, "update"},
		{write{request: "DELETE /first", code: 200}, "delete"},
		{write{request: "DELETE ", code: 200}, "delete"},
	}
	for set := range 1 << len(functions) {
		var has []string
		verbs := []string{"get", "list", "watch"}
		system := newShop(false, newGadget("first", "measure", nil))
		client := startShop(t, system, func(kind *registry.Kind[*v1.Gadget]) {
			source, _ := kind.Source.(registry.Cached[*v1.Gadget])
			for i, f := range functions {
				if set>>i&1 == 0 {
					f.unset(&source)
					continue
				}
				has, verbs = append(has, f.name), append(verbs, f.verbs...)
			}
			kind.Source = source
		})
		slices.Sort(verbs)
		if diff := cmp.Diff(verbs, gadgetVerbs(t, client)); diff != "" {
			t.Errorf("a source with %v: verbs in discovery (-want +got):\n%s", has, diff)
		}
		for _, r := range requests {
			for name := range strings.SplitSeq(r.needs, ",") {
				if !slices.Contains(has, name) {
					r.code = http.StatusMethodNotAllowed
				}
			}
			if code, body, err := client.sendAs(t.Context(), "ann", r.request, r.body); err != nil || code != r.code {
				t.Errorf("a source with %v: %s: got %d %v %s, want %d", has, r.request, code, err, body, r.code)
			}
		}
	}
}

// unchanged does not modify a kind.
func unchanged(*registry.Kind[*v1.Gadget]) {}

// gadgetVerbs returns the verbs of gadgets in discovery.
func gadgetVerbs(t *testing.T, client *offlineClient) []string {
	t.Helper()
	var resources metav1.APIResourceList
	if err := json.Unmarshal([]byte(client.get(t, path.Dir(gadgets))), &resources); err != nil {
		t.Fatal(err)
	}
	for _, r := range resources.APIResources {
		if r.Name == path.Base(gadgets) {
			return r.Verbs
		}
	}
	t.Fatalf("no gadgets in %v", resources)
	return nil
}

// startShop starts a server with the gadgets of a system, and returns its client. change modifies
// the kind.
func startShop(t *testing.T, system *shop, change func(*registry.Kind[*v1.Gadget])) *offlineClient {
	t.Helper()
	api := system.api(nil, change)
	api.Admission = []AdmissionPlugin{{Name: "Refusal", New: func(*Runtime) (admission.Interface, error) {
		return refusal{admission.NewHandler(admission.Create, admission.Update, admission.Delete)}, nil
	}}}
	client := startOffline(t, api, func(*serverConfig) {}, nil).client("HTTP/2.0")
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// TestSourceWithMetadata checks writes if the system of a kind stores all metadata: server-side
// apply, finalizers and deletion in the foreground work as with etcd.
func TestSourceWithMetadata(t *testing.T) {
	const apply = "APPLY /applied?fieldManager=t"
	system := newShop(true, newGadget("first", "measure", nil))
	system.run(t, startShop(t, system, unchanged), []write{
		{name: "create", request: "POST ", body: gadgetJSON("second", "weigh", ""), code: 201, want: `"managedFields"`,
			calls: []string{"create second weigh/2"}},
		{name: "apply", request: apply, body: precise(gadgetJSON("applied", "apply", ""), 4), code: 201,
			calls: []string{"create applied apply/4"}},
		{name: "apply again", request: apply, body: precise(gadgetJSON("applied", "apply", ""), 4), code: 200,
			want: `"manager":"t"`},
		{name: "apply another value", request: apply, body: precise(gadgetJSON("applied", "other", ""), 4), code: 200,
			calls: []string{"update applied other/4"}},
		{name: "apply a field less", request: apply, body: gadgetJSON("applied", "other", ""), code: 200,
			want: `"precision":2`, calls: []string{"update applied other/2"}},
		{name: "apply of another manager", request: "APPLY /applied?fieldManager=u", body: gadgetJSON("applied", "third", ""),
			code: 409, want: `conflict with \"t\"`},
		{name: "add a finalizer", request: "MERGE /second", body: `{"metadata":{` + finalizer + `}}`, code: 200,
			want: finalizer, calls: []string{"update second weigh/2"}},
		{name: "delete with a finalizer", request: "DELETE /second", code: 200, want: `"deletionTimestamp"`,
			calls: []string{"update second weigh/2"}},
		{name: "the object that is being deleted", request: "GET /second", code: 200, want: `"deletionTimestamp"`},
		{name: "remove the finalizer", request: "MERGE /second", body: `{"metadata":{"finalizers":null}}`, code: 200,
			calls: []string{"delete second"}},
		{name: "the deleted object", request: "GET /second", code: 404},
		{name: "delete in the foreground", request: "DELETE /applied?propagationPolicy=Foreground", code: 200,
			want: "foregroundDeletion", calls: []string{"update applied other/2"}},
		{name: "create with a finalizer", request: "POST ", body: gadgetJSON("third", "weigh", ","+finalizer), code: 201,
			want: finalizer, calls: []string{"create third weigh/2"}},
	})
}

// TestSourceVersions checks updates with the resourceVersion that a client has read, and that an
// update without a change does not reach the system.
func TestSourceVersions(t *testing.T) {
	system := newShop(false, newGadget("first", "measure", nil))
	client := startShop(t, system, unchanged)
	read := client.get(t, gadgets+"/first")
	changed := strings.Replace(read, `"measure"`, `"weigh"`, 1)
	system.run(t, client, []write{
		{name: "without a change", request: "PUT /first", body: read, code: 200},
		{name: "with a change", request: "PUT /first", body: changed, code: 200, want: `"weigh"`,
			calls: []string{"update first weigh/2"}},
		{name: "with the old version", request: "PUT /first", body: read, code: 409, want: "the object has been modified"},
		{name: "patch with the old version", request: "MERGE /first", body: read, code: 409},
	})
	events := watchNames(t, client, "ann", "", "application/json")
	for _, w := range []write{
		{name: "create", request: "POST ", body: gadgetJSON("second", "weigh", ""), want: "ADDED second"},
		{name: "update", request: "PUT /second", body: gadgetJSON("second", "count", ""), want: "MODIFIED second"},
		{name: "delete", request: "DELETE /second", want: "DELETED second"},
	} {
		if code, body, err := client.sendAs(t.Context(), "ann", w.request, w.body); err != nil || code > 299 {
			t.Fatalf("%s: got %d %v %s", w.name, code, err, body)
		}
		if got := nextName(t, events); got != w.want {
			t.Errorf("%s: the watch has sent %s, want %s", w.name, got, w.want)
		}
	}
}

// watchNames starts a watch of gadgets from now on, or with the initial events that the query
// requests, and returns its events without bookmarks: "TYPE NAME", and the label owner if there is one.
func watchNames(t *testing.T, client *offlineClient, name, query, accept string) <-chan string {
	t.Helper()
	if !strings.Contains(query, "sendInitialEvents") {
		_, body, err := client.sendAs(t.Context(), name, "GET ", "")
		var list metav1.PartialObjectMetadataList
		if err = errors.Join(err, json.Unmarshal([]byte(body), &list)); err != nil {
			t.Fatal(err)
		}
		query += "&resourceVersion=" + list.ResourceVersion
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+client.address+gadgets+"?watch=1&"+query,
		nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Remote-User", name)
	req.Header.Set("Accept", accept)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	names := make(chan string, 100)
	go func() {
		defer close(names)
		for events := json.NewDecoder(resp.Body); ; {
			var event struct {
				Type   string
				Object struct {
					Metadata metav1.ObjectMeta
					Rows     []struct{ Object metav1.PartialObjectMetadata }
				}
			}
			if events.Decode(&event) != nil {
				return
			}
			for _, row := range event.Object.Rows {
				event.Object.Metadata = row.Object.ObjectMeta
			}
			if event.Type != "BOOKMARK" {
				names <- strings.TrimSpace(event.Type + " " + event.Object.Metadata.Name + " " +
					event.Object.Metadata.Labels["owner"])
			}
		}
	}()
	return names
}

// nextName returns the next event of watchNames.
func nextName(t *testing.T, events <-chan string) string {
	t.Helper()
	select {
	case event, ok := <-events:
		if !ok {
			return "the end of the watch"
		}
		return event
	case <-time.After(20 * time.Second):
		return "no event for 20 s"
	}
}
