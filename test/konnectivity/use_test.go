// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/apis/identity"
	"example.com/extension-apiserver/pkg/envtest"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/test/clients/console"
)

const (
	prefix  = "/apis/workshop.example.com/v1"
	gadgets = prefix + "/gadgets"
	// listSize is the minimum size of the list of bigList.
	listSize = 5 << 20
)

// bigList creates gadgets whose list has 5 MiB. Their annotations do not compress.
func bigList(t testing.TB, e *envtest.Environment) {
	t.Helper()
	client, err := dynamic.NewForConfig(e.Admin(t))
	if err != nil {
		t.Fatal(err)
	}
	const size = 200 << 10 // an object's annotations may have 256 KiB
	random := rand.NewChaCha8([32]byte{1})
	for i := range listSize/size + 1 {
		data := make([]byte, size/2)
		_, _ = random.Read(data)
		obj := gadget(fmt.Sprintf("big-%d", i))
		obj.SetAnnotations(map[string]string{"example.com/ballast": fmt.Sprintf("%x", data)})
		if _, err := client.Resource(v1.SchemeGroupVersion.WithResource("gadgets")).Create(t.Context(), obj,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func gadget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1.SchemeGroupVersion.String(), "kind": "Gadget", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"purpose": "is carried"},
	}}
}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1.SchemeGroupVersion.String(), "kind": "Widget", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"model": "pendulum"},
	}}
}

// use does what users do, as the user of the config. It holds a watch while it creates, gets,
// updates, patches, lists 5 MiB, talks to a console and deletes. It calls whileOpen when the watch
// and the console are open.
func use(t *testing.T, config *rest.Config, whileOpen func()) {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	widgets := client.Resource(v1.SchemeGroupVersion.WithResource("widgets")).Namespace("default")
	sameIdentity(t, config)
	begin, err := widgets.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	events, err := widgets.Watch(t.Context(), metav1.ListOptions{ResourceVersion: begin.GetResourceVersion()})
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	defer events.Stop()

	created, err := widgets.Create(t.Context(), widget("w"), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	expect(t, events, watch.Added)
	got, err := widgets.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	if diff := cmp.Diff(created, got); diff != "" {
		t.Errorf("get is not what was created (-created +got):\n%s", diff)
	}
	bigGet(t, config)
	got.SetLabels(map[string]string{"updated": "yes"})
	if _, err := widgets.Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("update: %v", err)
	}
	expect(t, events, watch.Modified)
	if _, err := widgets.Patch(t.Context(), "w", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"patched":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatalf("patch: %v", err)
	}
	expect(t, events, watch.Modified)
	talk(t, config, whileOpen)
	if err := widgets.Delete(t.Context(), "w", metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete: %v", err)
	}
	expect(t, events, watch.Deleted)
}

func expect(t *testing.T, events watch.Interface, want watch.EventType) {
	t.Helper()
	select {
	case event, open := <-events.ResultChan():
		if !open || event.Type != want {
			t.Fatalf("watch: got %v (open: %t), want %s", event, open, want)
		}
	case <-time.After(envtest.WaitTimeout):
		t.Fatalf("watch: no event after %s, want %s", envtest.WaitTimeout, want)
	}
}

// sameIdentity compares the identity that the server sees with kube-apiserver's SelfSubjectReview.
func sameIdentity(t *testing.T, config *rest.Config) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	want, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	body, err := client.RESTClient().Post().RequestURI(prefix + "/identityreviews").
		Body([]byte(`{"apiVersion":"workshop.example.com/v1","kind":"IdentityReview"}`)).DoRaw(t.Context())
	if err != nil {
		t.Fatalf("create an IdentityReview: %v: %s", err, body)
	}
	var got identity.IdentityReview
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want.Status.UserInfo, got.Status.UserInfo); diff != "" {
		t.Errorf("identity (-kube-apiserver +our server):\n%s", diff)
	}
	if got.Status.Authenticator != "RequestHeader" || got.Status.ProxySubject != "CN="+certs.FrontProxyUser {
		t.Errorf("accepted by %s for %s, want RequestHeader for the front proxy", got.Status.Authenticator,
			got.Status.ProxySubject)
	}
}

// bigGet lists all gadgets, uncompressed.
func bigGet(t testing.TB, config *rest.Config) {
	t.Helper()
	config = rest.CopyConfig(config)
	config.DisableCompression = true
	body, err := read(t.Context(), config, gadgets)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	var list unstructured.UnstructuredList
	if err := list.UnmarshalJSON(body); err != nil {
		t.Fatalf("list of %d bytes: %v", len(body), err)
	}
	if len(body) < listSize {
		t.Errorf("the list has %d objects in %d bytes, want at least %d bytes", len(list.Items), len(body), listSize)
	}
}

// talk has a conversation with the console of the widget, and calls whileOpen in the middle of it.
func talk(t *testing.T, config *rest.Config, whileOpen func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), envtest.WaitTimeout)
	defer cancel()
	c := console.Open(ctx, t, config, "default", "w")
	for i := range 3 {
		// A line that needs several packets.
		c.Echo(t, fmt.Sprintf("%d %s", i, strings.Repeat("x", 1000)))
	}
	whileOpen()
	c.Say(t, "exit")
	if err := c.End(t); err != nil {
		t.Errorf("console after exit: %v, want success", err)
	}
}
