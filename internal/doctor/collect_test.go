// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"
)

const apiServiceList = `{"kind": "APIServiceList", "apiVersion": "apiregistration.k8s.io/v1", "items": [
	{"metadata": {"name": "v1.example.com"}, "spec": {"group": "example.com", "version": "v1",
		"service": {"namespace": "demo", "name": "widgets"}}}]}`

// TestGarbage: a kube-apiserver that returns garbage leads to an error or to facts that were not
// read.
func TestGarbage(t *testing.T) {
	for name, garbage := range map[string]string{
		"text": "garbage", "nothing": "", "list": "[]", "number": "1", "null": "null", "object": "{}",
		"another kind": `{"kind": "Status", "apiVersion": "v1"}`, "nested": strings.Repeat(`{"a":`, 1000),
	} {
		t.Run(name, func(t *testing.T) {
			only := true
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if !only && strings.HasSuffix(req.URL.Path, "/apiservices") {
					_, _ = io.WriteString(w, apiServiceList)
					return
				}
				_, _ = io.WriteString(w, garbage)
			}))
			defer server.Close()
			f, _ := Collect(t.Context(), &rest.Config{Host: server.URL}, Options{})
			NewReport(f)
			only = false
			f, err := Collect(t.Context(), &rest.Config{Host: server.URL}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			r := NewReport(f)
			if len(r.APIServices) != 1 || len(r.RootCauses) == 0 {
				t.Errorf("got %+v, want one APIService that is not available", r)
			}
		})
	}
}

// TestDeadline: Collect does not exceed its context, and returns what it has read.
func TestDeadline(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/apiservices") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, apiServiceList)
			return
		}
		<-req.Context().Done()
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	f, err := Collect(ctx, &rest.Config{Host: server.URL}, Options{})
	if err != nil || len(f.Unread) == 0 {
		t.Fatalf("got %+v, %v, want facts that were not read", f, err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("Collect took %s", took)
	}
}

// TestEndpoints: an endpoint without an address is ignored.
func TestEndpoints(t *testing.T) {
	b := &Backend{Service: &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}},
		Slices: []discoveryv1.EndpointSlice{{Ports: []discoveryv1.EndpointPort{{Port: new(int32(6443))}},
			Endpoints: []discoveryv1.Endpoint{{}, {Addresses: []string{"10.0.0.1"}}}}}}
	if diff := cmp.Diff([]string{"10.0.0.1:6443"}, b.endpoints(443)); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
}
