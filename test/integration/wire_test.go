// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// The types of bodies.
const (
	jsonType       = runtime.ContentTypeJSON
	jsonPatch      = string(types.JSONPatchType)
	mergePatch     = string(types.MergePatchType)
	strategicPatch = string(types.StrategicMergePatchType)
	applyPatch     = string(types.ApplyYAMLPatchType)
)

// wire sends requests about the objects of one resource as they are: what a client library would not send, or does not
// show of the answer, is tested with it. Requests and answers are written with words such as <kind> for what is
// particular to the resource, so that what our server answers can be compared with what kube-apiserver answers about a
// built-in resource.
type wire struct {
	client *http.Client
	// url is that of the collection.
	url string
	// fill replaces the words by what they stand for, blank does the opposite.
	fill, blank *strings.Replacer
}

// newWire speaks for a user about a resource in a namespace. The words are pairs: the word and what it stands for.
func newWire(t *testing.T, config *rest.Config, resource schema.GroupVersionResource, namespace string, words ...string) wire {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	var reverse []string
	for pair := range slices.Chunk(words, 2) {
		// A word with a colon is for requests only.
		if !strings.Contains(pair[0], ":") {
			reverse = append(reverse, pair[1], pair[0])
		}
	}
	return wire{
		client: client,
		url:    fmt.Sprintf("%s/apis/%s/namespaces/%s/%s", config.Host, resource.GroupVersion(), namespace, resource.Resource),
		fill:   strings.NewReplacer(words...),
		blank:  strings.NewReplacer(reverse...),
	}
}

// engineWire is about engines.
func engineWire(t *testing.T, config *rest.Config, namespace string) wire {
	t.Helper()
	gv := engineCase.resource.GroupVersion()
	return newWire(t, config, engineCase.resource, namespace,
		"<resource>", "engines."+gv.Group, "<groupKind>", "Engine."+gv.Group, "<gv>", gv.String(), "<group>", gv.Group,
		"<plural>", "engines", "<kindSpec>.spec.<number>", "EngineSpec.spec.replicas", "<kind>", "Engine",
		"<spec>", `{"model":"m"}`, "<number:>", `"model":"m","replicas":`, "<:number>", "",
		"<namespace>", namespace)
}

// ingressWire is about a built-in resource that has a spec, a status and a generation as engines have, and that no
// controller of the environment touches.
func ingressWire(t *testing.T, config *rest.Config, namespace string) wire {
	t.Helper()
	gv := schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}
	return newWire(t, config, gv.WithResource("ingresses"), namespace,
		"<resource>", "ingresses."+gv.Group, "<groupKind>", "Ingress."+gv.Group, "<gv>", gv.String(), "<group>", gv.Group,
		"<plural>", "ingresses", "<kindSpec>.spec.<number>", "ServiceBackendPort.spec.defaultBackend.service.port.number", "<kind>", "Ingress",
		"<spec>", `{"defaultBackend":{"service":{"name":"m","port":{"number":1}}}}`,
		"<number:>", `"defaultBackend":{"service":{"name":"m","port":{"number":`, "<:number>", "}}}",
		"<namespace>", namespace)
}

// asBuiltIn is both: a test that goes through it shows that engines behave as a built-in resource does.
func asBuiltIn(t *testing.T, config *rest.Config, namespace string) map[string]wire {
	t.Helper()
	return map[string]wire{"engines": engineWire(t, config, namespace), "ingresses": ingressWire(t, config, namespace)}
}

// wireObject is an object with the metadata and a valid spec, and with the members that are given beside.
func wireObject(metadata, members string) string {
	return `{"apiVersion":"<gv>","kind":"<kind>","metadata":` + metadata + `,"spec":<spec>` + members + `}`
}

// reply is an answer as it came.
type reply struct {
	code   int
	header http.Header
	body   []byte
	blank  *strings.Replacer
}

// send sends a request; the path is what follows the URL of the collection.
func (w wire) send(t *testing.T, method, path, contentType, body string) reply {
	t.Helper()
	// Not t.Context alone: requests are sent in cleanups too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(w.fill.Replace(body)))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return reply{resp.StatusCode, resp.Header, data, w.blank}
}

// must sends JSON and returns the object of the answer, which must have the code.
func (w wire) must(t *testing.T, code int, method, path, contentType, body string) *unstructured.Unstructured {
	t.Helper()
	r := w.send(t, method, path, contentType, body)
	if r.code != code {
		t.Fatalf("%s %s %.500s: %s, want %d", method, path, body, r, code)
	}
	return r.object(t)
}

// gone checks that there is no object w.
func (w wire) gone(t *testing.T) {
	t.Helper()
	if r := w.send(t, http.MethodGet, "/w", "", ""); r.code != http.StatusNotFound {
		t.Errorf("GET /w: %s, want 404", r)
	}
}

func (r reply) object(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(r.body); err != nil {
		t.Fatalf("answer %d is no object: %v\n%s", r.code, err, r.body)
	}
	return obj
}

// String is all that a client gets: "CODE REASON: MESSAGE (GROUP KIND NAME) [FIELD: CAUSE, ...]" of an error, "CODE KIND" of
// an object, "CODE Success" else; then the warnings, each after a bar.
func (r reply) String() string {
	var kind metav1.TypeMeta
	var status metav1.Status
	s := fmt.Sprintf("%d ", r.code)
	if err := json.Unmarshal(r.body, &kind); err != nil || kind.Kind != "Status" {
		s += cmp.Or(kind.Kind, string(r.body))
	} else if err := json.Unmarshal(r.body, &status); err != nil || status.Status == metav1.StatusSuccess {
		s += status.Status
	} else {
		s += fmt.Sprintf("%s: %s", status.Reason, status.Message)
	}
	if d := status.Details; d != nil {
		if about := strings.TrimSpace(d.Group + " " + d.Kind + " " + d.Name); about != "" {
			s += " (" + about + ")"
		}
		var causes []string
		for _, cause := range d.Causes {
			causes = append(causes, fmt.Sprintf("%s: %s", cause.Field, cause.Type))
		}
		if len(causes) > 0 {
			s += " [" + strings.Join(causes, ", ") + "]"
		}
	}
	return r.blank.Replace(strings.Join(append([]string{s}, r.header.Values("Warning")...), " | "))
}
