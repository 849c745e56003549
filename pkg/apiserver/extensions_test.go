// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/fake"

	"example.com/extension-apiserver/pkg/registry"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/registry/workshop/gadget"
	validation "example.com/extension-apiserver/sample/validation/workshop"
)

// gadgetLogOptions are the query options of a log.
type gadgetLogOptions struct {
	metav1.TypeMeta
	Follow    bool         `json:"follow,omitempty"`
	TailLines *int64       `json:"tailLines,omitempty"`
	SinceTime *metav1.Time `json:"sinceTime,omitempty"`
	Level     logLevel     `json:"level,omitempty"`
	Streams   []logLevel   `json:"streams,omitempty"`
}

type logLevel string

func (o *gadgetLogOptions) DeepCopyObject() runtime.Object {
	out := *o
	return &out
}

// onlyIfOther is a plugin that admits a gadget only if the gadget that its purpose names exists.
type onlyIfOther struct {
	*admission.Handler
	runtime *Runtime
}

func (p onlyIfOther) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	created, ok := a.GetObject().(*v1.Gadget)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	other, found := strings.CutPrefix(created.Spec.Purpose, "with ")
	if !found {
		return nil
	}
	reader, err := p.runtime.Reader(v1.Resource("gadgets"))
	if err != nil {
		return err
	}
	if _, err := reader.Get(ctx, other, &metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return admission.NewForbidden(a, fmt.Errorf("there is no gadget %s", other))
	}
	return nil
}

// gadgetLogs defines the text that the logs of gadgets write, and receives their final errors.
type gadgetLogs struct {
	lines   chan string
	ended   chan error
	flooded int // bytes
}

func (l *gadgetLogs) write(ctx context.Context, g *v1.Gadget, o *gadgetLogOptions, w io.Writer) error {
	if o.TailLines != nil && *o.TailLines < 0 {
		return apierrors.NewBadRequest("tailLines is negative")
	}
	if o.Level == "flood" {
		for {
			n, err := w.Write(make([]byte, 64<<10))
			l.flooded += n
			if err != nil {
				l.ended <- err
				return err
			}
		}
	}
	_, _ = fmt.Fprintf(w, "log of %s\n", g.Name)
	for o.Follow {
		select {
		case line := <-l.lines:
			if _, err := io.WriteString(w, line); err != nil {
				return err
			}
		case <-ctx.Done():
			l.ended <- context.Cause(ctx)
			return ctx.Err()
		}
	}
	return nil
}

// tail is a subresource that reads options from the query.
type tail struct{ *genericregistry.Store }

// NewGetOptions implements rest.GetterWithOptions.
func (tail) NewGetOptions() (runtime.Object, bool, string) { return &gadgetLogOptions{}, false, "" }

// Get implements rest.GetterWithOptions.
func (s tail) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	obj, err := s.Store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	g := obj.(*v1.Gadget).DeepCopy()
	if lines := options.(*gadgetLogOptions).TailLines; lines != nil {
		g.Spec.Purpose = fmt.Sprintf("%d lines", *lines)
	}
	return g, nil
}

// onlyTail hides the other methods of the store.
type onlyTail struct {
	rest.Storage
	rest.GetterWithOptions
}

// extended returns an API with every extension that an API can have, and its logs.
func extended() (API, *gadgetLogs) {
	logs := &gadgetLogs{lines: make(chan string), ended: make(chan error, 1)}
	kind := gadget.Kind
	kind.Subresources = map[string]registry.Subresource[*v1.Gadget]{
		"sharpen": registry.Action(func(ctx context.Context, g, by *v1.Gadget) (*v1.Gadget, error) {
			if RuntimeFrom(ctx) == nil {
				return nil, errors.New("no runtime")
			}
			g.Spec.Precision = by.Spec.Precision
			return g, nil
		}),
		"weigh": registry.Action(func(_ context.Context, _, by *v1.Gadget) (*metav1.Status, error) {
			return &metav1.Status{Status: metav1.StatusSuccess, Message: by.Spec.Purpose}, nil
		}),
		"log": registry.Log(logs.write),
		"tail": registry.CustomSubresource[*v1.Gadget](func(store *genericregistry.Store,
			_ authorizer.Authorizer) rest.Storage {
			return onlyTail{store, tail{store}}
		}),
	}
	api := withGroup(func(g *Group) {
		g.Kinds, g.Validation = []registry.NewStorage{kind.NewStorage}, validation.AddToScheme
		g.AddToScheme = func(scheme *runtime.Scheme) error {
			scheme.AddKnownTypeWithName(v1.SchemeGroupVersion.WithKind("GadgetLogOptions"), &gadgetLogOptions{})
			return addToScheme(scheme)
		}
	})
	api.Admission = []AdmissionPlugin{{Name: "OnlyIfOther", New: func(r *Runtime) (admission.Interface, error) {
		return onlyIfOther{admission.NewHandler(admission.Create), r}, nil
	}}}
	api.PostStart = map[string]PostStartHook{"first-gadget": func(ctx context.Context, r *Runtime) error {
		client, err := dynamic.NewForConfig(r.LoopbackConfig)
		if err != nil {
			return err
		}
		_, err = client.Resource(v1.SchemeGroupVersion.WithResource("gadgets")).Create(ctx, &unstructured.Unstructured{
			Object: map[string]any{"apiVersion": v1.SchemeGroupVersion.String(), "kind": "Gadget",
				"metadata": map[string]any{"name": "first"}, "spec": map[string]any{"purpose": "first", "precision": int64(3)}},
		}, metav1.CreateOptions{})
		return err
	}}
	return api, logs
}

// TestExtensions: actions, logs, plugins and hooks of an API work in a complete server.
func TestExtensions(t *testing.T) {
	api, logs := extended()
	s := startOffline(t, api, func(c *serverConfig) { c.generic.RequestTimeout = 5 * time.Second }, nil)
	client := s.client("HTTP/2.0")
	defer client.CloseIdleConnections()
	gadgetOf := func(purpose string) string {
		return `{"apiVersion":"workshop.example.com/v1","kind":"Gadget","spec":{"purpose":"` + purpose + `","precision":5}}`
	}
	for _, tc := range []struct {
		name, method, path, body string
		code                     int
		want                     string
	}{
		{"the hook's gadget", http.MethodGet, "/first", "", 200, `"precision":3`},
		{"plugin", http.MethodPost, "", strings.Replace(gadgetOf("with none"), `"spec"`, `"metadata":{"name":"a"},"spec"`, 1),
			403, "there is no gadget none"},
		{"plugin, admitted", http.MethodPost, "", strings.Replace(gadgetOf("with first"), `"spec"`,
			`"metadata":{"name":"a"},"spec"`, 1), 201, ""},
		{"action, dry run", http.MethodPost, "/first/sharpen?dryRun=All", gadgetOf("p"), 201, `"precision":5`},
		{"after the dry run", http.MethodGet, "/first", "", 200, `"precision":3`},
		{"action", http.MethodPost, "/first/sharpen", gadgetOf("p"), 201, `"generation":2`},
		{"after the action", http.MethodGet, "/first", "", 200, `"precision":5`},
		{"action with a result", http.MethodPost, "/first/weigh", gadgetOf("heavy"), 201, `"message":"heavy"`},
		{"action of no object", http.MethodPost, "/none/sharpen", gadgetOf("p"), 404, `"none\" not found`},
		{"another uid", http.MethodPost, "/first/sharpen", strings.Replace(gadgetOf("p"), `"spec"`,
			`"metadata":{"uid":"x"},"spec"`, 1), 409, "Precondition failed: UID"},
		{"another version", http.MethodPost, "/first/sharpen", strings.Replace(gadgetOf("p"), `"spec"`,
			`"metadata":{"resourceVersion":"1"},"spec"`, 1), 409, ""},
		{"a body of another kind", http.MethodPost, "/first/sharpen",
			`{"apiVersion":"workshop.example.com/v1","kind":"GadgetList","items":[]}`, 400, "GadgetList in version \\\"v1\\\" cannot be handled as a Gadget"},
		{"no body", http.MethodPost, "/first/sharpen", "", 400, ""},
		{"an invalid body", http.MethodPost, "/first/sharpen", `{"spec":{"precision":5}}`, 422, "spec.purpose"},
		{"GET of an action", http.MethodGet, "/first/sharpen", "", 405, ""},
		{"get with options", http.MethodGet, "/first/tail?tailLines=4", "", 200, `"purpose":"4 lines"`},
		{"get with options that do not fit", http.MethodGet, "/first/tail?tailLines=x", "", 400, "tailLines"},
		{"log", http.MethodGet, "/first/log?tailLines=3", "", 200, "log of first\n"},
		{"log of no object", http.MethodGet, "/none/log", "", 404, ""},
		{"log, an option that does not fit", http.MethodGet, "/first/log?tailLines=many", "", 400, "tailLines"},
		{"log, refused", http.MethodGet, "/first/log?tailLines=-1", "", 400, "tailLines is negative"},
	} {
		code, body, err := client.do(t.Context(), tc.method, gadgets+tc.path, tc.body)
		if err != nil || code != tc.code || !strings.Contains(body, tc.want) {
			t.Errorf("%s: got %d %v %s, want %d with %q", tc.name, code, err, body, tc.code, tc.want)
		}
	}
	follow := openLog(t, s, client, "follow")
	read := bufio.NewReader(follow)
	for _, line := range []string{"log of first\n", "a\n", "b\n"} {
		if line != "log of first\n" {
			logs.lines <- line
		}
		if got, err := read.ReadString('\n'); err != nil || got != line {
			t.Fatalf("follow: got %q, %v, want %q", got, err, line)
		}
	}
	openAPI := client.get(t, "/openapi/v3/apis/workshop.example.com/v1")
	for _, want := range []string{`"name":"tailLines","in":"query","schema":{"type":"integer","uniqueItems":true}`,
		`"name":"sinceTime","in":"query","schema":{"type":"string"`, `"name":"level","in":"query","schema":{"type":"string"`,
		`"name":"streams","in":"query","schema":{"type":"string"`, "/gadgets/{name}/sharpen", "/gadgets/{name}/tail"} {
		if !strings.Contains(openAPI, want) {
			t.Errorf("OpenAPI has no %s", want)
		}
	}
	if n := strings.Count(openAPI, `"name":"sinceTime","in":"query"`); n != 2 {
		t.Errorf("OpenAPI has sinceTime %d times, want it for log and for tail", n)
	}
	metrics := client.get(t, "/metrics")
	for _, want := range []string{
		`apiserver_longrunning_requests{component="apiserver",group="workshop.example.com",resource="gadgets",scope="resource",subresource="log",verb="CONNECT",version="v1"} 1`,
		// The one seat belongs to the request for the metrics. The log has none.
		`apiserver_flowcontrol_current_executing_seats{flow_schema="catch-all",priority_level="catch-all"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics: no %s", want)
		}
	}
	_ = openLog(t, s, client, "level=flood") // the client does not read it
	wait := time.After(time.Minute)
	select {
	case err := <-logs.ended:
		// An HTTP/2 client has buffers of 4 MiB for a stream, and the kernel has some.
		if logs.flooded > 64<<20 || errors.Is(err, context.Canceled) {
			t.Errorf("a log that nobody reads ended with %v after %d bytes", err, logs.flooded)
		}
	case <-wait:
		t.Fatal("a log that nobody reads goes on")
	}
	if code, _, err := client.do(t.Context(), http.MethodGet, gadgets+"/first/log", ""); code != 200 || err != nil {
		t.Errorf("a log after one that nobody read: got %d %v, want 200", code, err)
	}
	s.stop()
	select {
	case err := <-logs.ended:
		if !apierrors.IsServiceUnavailable(err) {
			t.Errorf("a log ended with %v when the server stopped, want that the server is shutting down", err)
		}
	case <-wait:
		t.Error("a log goes on when the server has stopped")
	}
	if rest, err := io.ReadAll(read); err == nil {
		t.Errorf("the log ends with %q as if it were whole", rest)
	}
}

// openLog requests the log of the first gadget and returns its body.
func openLog(t *testing.T, s *offline, client *offlineClient, query string) io.Reader {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address+gadgets+"/first/log?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Remote-User", "ann")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.Body
}

// testFlags are flags of an API.
type testFlags struct{ limit int }

func (f *testFlags) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&f.limit, "gadget-limit", 3, "Limit.")
	fs.String("etcd-prefix", "", "A flag of the server.")
}
func (f *testFlags) Validate() []error {
	if f.limit < 1 {
		return []error{fmt.Errorf("--gadget-limit is %d, expected at least 1", f.limit)}
	}
	return nil
}

// TestAPIFlags: the flags of an API are added to those of serve and validated with them.
func TestAPIFlags(t *testing.T) {
	api := testAPI
	api.Flags = []Flags{&testFlags{}}
	o := mustOptions(api)
	flags := o.Flags()
	fs := flags.FlagSet("extension-apiserver")
	if err := fs.Parse([]string{"--gadget-limit=0"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--gadget-limit is 0, expected at least 1",
		"flag --etcd-prefix of the API: the server already has a flag with this name"} {
		if got := fmt.Sprint(o.Validate()); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestExtensionErrors: Validate reports all errors in the extensions of an API.
func TestExtensionErrors(t *testing.T) {
	api := testAPI
	api.Admission = []AdmissionPlugin{{}, {Name: "NamespaceLifecycle"}, {Name: "ResourceQuota"}, {Name: "Other"}, {Name: "Other",
		New:         func(*Runtime) (admission.Interface, error) { return nil, nil },
		Permissions: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/"}, Verbs: []string{"get"}}}}}
	api.PostStart = map[string]PostStartHook{"A": nil}
	api.Permissions = []rbacv1.PolicyRule{{Verbs: []string{"get"}}}
	err := api.Validate()
	for _, want := range []string{"admission plugin 1 has no name", `duplicate admission plugin "NamespaceLifecycle"`,
		`duplicate admission plugin "ResourceQuota"`,
		"admission plugin Other: New is not set", `duplicate admission plugin "Other"`, "permission of admission plugin Other",
		`post-start hook "A": a lowercase`, `post-start hook "A": the function is nil`, "permission of the API: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to contain %q", err, want)
		}
	}
}

// TestExtensionPermissions: the server reviews the permissions of an API and of its plugins,
// except those of a disabled plugin.
func TestExtensionPermissions(t *testing.T) {
	api := testAPI
	api.Permissions = []rbacv1.PolicyRule{{Verbs: []string{"get", "update"}, APIGroups: []string{"coordination.k8s.io"},
		Resources: []string{"leases"}, ResourceNames: []string{"a", "b"}}}
	api.NamespacePermissions = []rbacv1.PolicyRule{{Verbs: []string{"create"}, APIGroups: []string{""},
		Resources: []string{"events"}}}
	api.Admission = []AdmissionPlugin{
		{Name: "On", Permissions: []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{""},
			Resources: []string{"secrets", "configmaps"}}}},
		{Name: "Off", Permissions: []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{""},
			Resources: []string{"pods"}}}},
	}
	var got []string
	for _, n := range api.needs(fake.NewClientset(), "own", []string{"Off"}) {
		got = append(got, fmt.Sprintf("%s: %s %s %s %s", n.part, strings.Join(n.verbs, ","), n.resource.GroupResource(),
			n.namespace, n.name))
	}
	want := []string{"extension-apiserver: get,update leases.coordination.k8s.io  a",
		"extension-apiserver: get,update leases.coordination.k8s.io  b", "extension-apiserver: create events own ",
		"On: list secrets  ", "On: list configmaps  "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("needed permissions (-want +got):\n%s", diff)
	}
	if n := len(api.AllPermissions()); n != 3 {
		t.Errorf("got %d rules for the role, want 3", n)
	}
}
