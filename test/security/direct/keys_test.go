// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stored returns everything that the server's etcd holds, by key.
func (s *server) stored(t *testing.T, client *clientv3.Client) map[string]string {
	t.Helper()
	all, err := client.Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	for _, kv := range all.Kvs {
		// Other keys, such as compact_rev_key, are not objects.
		if key := string(kv.Key); strings.HasPrefix(key, "/") {
			keys[key] = string(kv.Value)
		}
	}
	return keys
}

// etcd returns a client of the server's embedded etcd, whose socket belongs to the user who
// started the server.
func (s *server) etcd(t *testing.T) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Context: t.Context(),
		Endpoints: []string{"unix://" + filepath.Join(s.dataDir, "etcd.sock")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// segments returns names and namespaces that would be paths, or other keys, if interpreted as
// such.
func segments() []string {
	return []string{
		"..", ".", "...", "%2e", "%2e%2e", "%2E%2E", ".%2e", "a%2fb", "%2fa", "a%2f", "%2e%2e%2f", "..%2f..", "..;",
		"..%2fother%2fcanary", "%2e%2e%2fother%2fcanary", "..%2f..%2fgadgets%2fcanary",
		"..%2f..%2f..%2fforeign%2fcanary",
		"..%5cother%5ccanary", "a%5cb", "%00", "canary%00", "%00canary", "a%00b",
		"%25", "%252e%252e%252f", "%252e%252e%252fother%252fcanary", "%25%32%65", strings.Repeat("x", 300),
		strings.Repeat("a%2f", 100),
		"%c3%a9", "%e2%80%ae", "%ef%bc%8e%ef%bc%8e", "%ff%fe", "%c0%ae%c0%ae", "%0a", "%20", "%3f", "%23", "*", "~",
		"-", "_", "ünïcode", "a:b",
	}
}

const widgets = "/apis/workshop.example.com/v1/namespaces/"

// TestS28PathsAsNames checks that a name or a namespace that is a path reads, changes and deletes
// no other object (CVE-2022-3162). Ann may do everything with widgets in a namespace except
// "s28-other", but not across namespaces, and nothing with gadgets. Bea may delete one widget of
// hers, not all.
func TestS28PathsAsNames(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.decide(t, func(spec authorizationv1.SubjectAccessReviewSpec) http.HandlerFunc {
		of := spec.ResourceAttributes
		var yes bool
		switch spec.User {
		case "boss":
			yes = true
		case "bea":
			yes = of != nil && of.Verb == "delete"
		case "ann":
			yes = of != nil && of.Resource == "widgets" && of.Namespace != "" && of.Namespace != "s28-other"
		}
		return reviewStatus(fmt.Sprintf(`"allowed":%t`, yes))
	})
	proxy, etcd := frontProxy(t), s.etcd(t)
	before := s.plant(t, etcd)
	ann := http.Header{"X-Remote-User": {"ann"}}
	s.try(proxy, http.MethodGet, widgets+"s28-mine/widgets/mine", ann, "").want(t, "what ann may see", http.StatusOK)
	count := 0
	send := func(method, target, contentType, body string, want ...string) {
		t.Helper()
		count++
		head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nX-Remote-User: ann\r\nContent-Type: %s\r\nContent-Length: "+
			"%d\r\n\r\n", method, target, contentType, len(body))
		status, response := s.raw(t, head+body, proxy)
		if !slices.Contains(want, status) {
			t.Errorf("%s %s: %s %.300s, want one of %v", method, target, status, response, want)
		}
		if strings.Contains(response, "canary-content") {
			t.Errorf("%s %s discloses what ann may not see: %.500s", method, target, response)
		}
	}
	// 404 or 405: no such path exists. 400 or 422: the name is invalid. 403: another namespace.
	refused := []string{"400", "403", "404", "405", "422"}
	for _, segment := range segments() {
		segment = strings.ReplaceAll(segment, "other", "s28-other")
		mine, elsewhere := widgets+"s28-mine/widgets/"+segment, widgets+segment+"/widgets"
		for _, target := range []string{mine, elsewhere + "/canary", elsewhere + "/" + segment} {
			for _, method := range []string{http.MethodGet, http.MethodDelete} {
				send(method, target, jsonType, "", refused...)
			}
			send(http.MethodPut, target, jsonType, widget("canary", "s28-mine"), refused...)
			send(http.MethodPatch, target, merge, `{"spec":{"grade":"Economy"}}`, refused...)
			send(http.MethodPatch, target+force, apply, widget("canary", ""), refused...)
			send(http.MethodGet, target+"/status", jsonType, "", refused...)
			send(http.MethodGet, target+"/scale", jsonType, "", refused...)
		}
		send(http.MethodDelete, elsewhere, jsonType, "", append(refused, "200")...)
		send(http.MethodPost, elsewhere, jsonType, widget("canary", ""), refused...)
		// A namespace that does not exist is empty: an empty list discloses nothing.
		send(http.MethodGet, elsewhere, jsonType, "", append(refused, "200")...)
	}
	t.Logf("%d requests", count)
	s.watchBadNames(t)
	// Without a name the request deletes the collection, and is authorized as such.
	bea := http.Header{"X-Remote-User": {"bea"}}
	s.try(proxy, http.MethodDelete, widgets+"s28-mine/widgets/%2f", bea, "").want(t, "DELETE with a slash for a name",
		http.StatusForbidden)
	s.createBadNames(send)
	if diff := cmp.Diff(before, s.stored(t, etcd)); diff != "" {
		t.Errorf("what is stored changed (-before +after):\n%s", diff)
	}
}

// watchBadNames opens all watches concurrently, for a second.
func (s *server) watchBadNames(t *testing.T) {
	ann := s.keep(t, frontProxy(t))
	var watchers sync.WaitGroup
	for _, segment := range segments() {
		segment = strings.ReplaceAll(segment, "other", "s28-other")
		const watch = "/widgets?watch=1&timeoutSeconds=1"
		for _, target := range []string{widgets + segment + watch, widgets + "s28-mine" + watch +
			"&fieldSelector=metadata.name=" + segment} {
			watchers.Go(func() {
				got := ann.try(http.MethodGet, target, http.Header{"X-Remote-User": {"ann"}}, "")
				if got.status != http.StatusOK && (got.status < 400 || got.status > 499) ||
					strings.Contains(got.body, "canary-content") {
					t.Errorf("GET %s: %s, want 4xx, or 200 and nothing", target, got)
				}
			})
		}
	}
	watchers.Wait()
}

// createBadNames checks that invalid names in bodies are rejected, too.
func (s *server) createBadNames(send func(method, target, contentType, body string, want ...string)) {
	for _, name := range []string{
		"..", ".", "a/b", "../s28-other/canary", "../../gadgets/canary", "/", "a/", "%2e%2e", "a%2fb", "\x00",
		"a\x00b", "a\\b",
		"é", "\u202e", "\uff0e\uff0e", "*", " ", "a b", "A",
		strings.Repeat("x", 300), strings.Repeat("../", 100),
	} {
		quoted := strings.ReplaceAll(strings.ReplaceAll(strconv.QuoteToASCII(name), `\x00`, `\u0000`), `\'`, `'`)
		send(http.MethodPost, widgets+"s28-mine/widgets", jsonType,
			strings.Replace(widget("", ""), `"name":""`, `"name":`+quoted, 1), "422")
		if len(name) == 300 {
			// It is truncated to leave room for the suffix.
			continue
		}
		send(http.MethodPost, widgets+"s28-mine/widgets", jsonType,
			strings.Replace(widget("", ""), `"name":""`, `"generateName":`+quoted, 1), "422")
		send(http.MethodPost, widgets+"s28-mine/widgets", jsonType,
			strings.Replace(widget("fine", ""), `"namespace":""`, `"namespace":`+quoted, 1), "400", "422")
	}
}

// plant stores objects that Ann may not access: a widget in another namespace, a gadget, and a key
// beside those of the server.
func (s *server) plant(t *testing.T, etcd *clientv3.Client) map[string]string {
	t.Helper()
	admin, err := shared.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"s28-mine", "s28-other"} {
		if _, err := admin.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	proxy, boss := frontProxy(t), http.Header{"X-Remote-User": {"boss"}}
	for path, body := range map[string]string{
		widgets + "s28-mine/widgets": widget("mine", ""), widgets + "s28-other/widgets": secretly(widget("canary", "")),
		protected: secretly(gadget("canary")),
	} {
		s.try(proxy, http.MethodPost, path, boss, body).want(t, "POST "+path, http.StatusCreated)
	}
	if _, err := etcd.Put(t.Context(), "/registry/foreign/canary", "canary-content"); err != nil {
		t.Fatal(err)
	}
	keys := s.stored(t, etcd)
	want := []string{
		"/registry/foreign/canary", "/registry/workshop.example.com/gadgets/canary",
		"/registry/workshop.example.com/widgets/s28-mine/mine",
		"/registry/workshop.example.com/widgets/s28-other/canary",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(keys))); diff != "" {
		t.Fatalf("keys in etcd (-want +got):\n%s", diff)
	}
	return keys
}

// secretly adds content that must not be disclosed.
func secretly(object string) string {
	return strings.Replace(object, `"metadata":{`, `"metadata":{"annotations":{"a":"canary-content"},`, 1)
}

func widget(name, namespace string) string {
	return `{"apiVersion":"workshop.example.com/v1","kind":"Widget","metadata":{"name":"` + name + `","namespace":"` +
		namespace + `"},"spec":{"model":"m"}}`
}
