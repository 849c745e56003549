// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	endpointmetrics "k8s.io/apiserver/pkg/endpoints/metrics"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/metrics/legacyregistry"
)

// TestMetricLabels: requests for paths that are not served create no series of their own.
func TestMetricLabels(t *testing.T) {
	endpointmetrics.Register()
	limitMetricLabels([]*genericapiserver.APIGroupInfo{{
		PrioritizedVersions: []schema.GroupVersion{{Group: "g.example.com", Version: "v1"}},
		VersionedResourcesStorageMap: map[string]map[string]rest.Storage{
			"v1": {"things": nil, "things/status": nil}},
	}}, []string{"/healthz"})
	for _, info := range []genericapirequest.RequestInfo{
		{IsResourceRequest: true, APIGroup: "g.example.com", APIVersion: "v1", Resource: "things",
			Subresource: "status"},
		{IsResourceRequest: true, APIGroup: "other.example.com", APIVersion: "v99", Resource: "unknown",
			Subresource: "more"},
		{Path: "/healthz"},
		{Path: "/unknown/path"},
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		endpointmetrics.RecordRequestTermination(req, &info, "apiserver", http.StatusGatewayTimeout)
		endpointmetrics.RecordRequestAbort(req, &info)
		endpointmetrics.RecordDroppedRequest(req, &info, "apiserver", false)
	}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	// The first server of the process sets the list, and another test may have started that
	// server.
	madeUp := []string{"other.example.com", "v99", "unknown", "more", "/unknown/path"}
	unexpected := 0
	for _, family := range families {
		if !slices.Contains(requestedLabels, family.GetName()) {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if slices.Contains(madeUp, label.GetValue()) {
					t.Errorf("%s has a series with %s=%q", family.GetName(), label.GetName(), label.GetValue())
				}
				if label.GetValue() == "unexpected" {
					unexpected++
				}
			}
		}
	}
	if want := 3 * 4; unexpected < want {
		t.Errorf("got %d labels that are unexpected, want at least %d", unexpected, want)
	}
}
