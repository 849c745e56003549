// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestLongHeaders checks that kube-apiserver, which accepts heads of 1 MiB, responds itself to
// those that are too long for the extension API server.
func TestLongHeaders(t *testing.T) {
	server := aggregator(t, shared)
	groups := func(n int) http.Header {
		header := http.Header{"Impersonate-User": {"somebody"}, "Impersonate-Group": {"system:masters"}}
		for i := range n {
			header.Add("Impersonate-Group", fmt.Sprintf("team-%045d", i))
		}
		return header
	}
	selector := func(bytes int) string { // with few requirements
		requirement := strings.Repeat(strings.Repeat("a", 60)+".", 3) + strings.Repeat("a", 60) + "/a!=" + strings.Repeat("a", 63) + ","
		return "?labelSelector=" + strings.Repeat(requirement, bytes/len(requirement)) + "a"
	}
	for name, tc := range map[string]struct {
		header http.Header
		query  string
		want   int
	}{
		"a selector of 30 kB": {nil, selector(30_000), http.StatusOK},
		"a query of 110 kB":   {nil, selector(30_000) + "&x=" + strings.Repeat("a", 80_000), http.StatusOK},
		"a query of 140 kB":   {nil, selector(30_000) + "&x=" + strings.Repeat("a", 110_000), http.StatusServiceUnavailable},
		"1,000 groups":        {groups(1000), "", http.StatusOK},
		"1,500 groups":        {groups(1500), "", http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			response := server.Do(t, http.MethodGet, "/apis/workshop.example.com/v1/gadgets"+tc.query, tc.header, nil)
			if response.Status != tc.want || tc.want != http.StatusOK &&
				!strings.Contains(string(response.Body), "request header list larger than peer's advertised limit") {
				t.Errorf("got %s, want %d", response, tc.want)
			}
		})
	}
}
