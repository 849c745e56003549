// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEngineGzip: what is larger than 128 KiB comes compressed to a client that can read it so, and is the same; what is
// small does not, since it would cost more than it saves.
func TestEngineGzip(t *testing.T) {
	namespace := newNamespace(t, shared)
	client := engineCase.client(t, adminConfig(t, shared), namespace)
	for i := range 40 {
		obj := engineCase.object(t, fmt.Sprintf("w%02d", i))
		obj.SetAnnotations(map[string]string{"filler": strings.Repeat(fmt.Sprint(i), 4096)})
		if _, err := client.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	now, err := engineCase.client(t, adminConfig(t, shared), namespace).List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	// One state, or what parallel tests write would be in the list's resourceVersion.
	path := engineCase.path(namespace) + "?resourceVersionMatch=Exact&resourceVersion=" + now.GetResourceVersion()
	for name, server := range map[string]endpoint{"through kube-apiserver": aggregator(t, shared), "direct": direct(t, shared)} {
		for _, f := range forms {
			for _, tc := range []struct {
				query      string
				compressed bool
			}{{"", true}, {"&limit=2", false}} {
				t.Run(name+" "+f.name+" "+tc.query, func(t *testing.T) {
					header := f.accept("")
					header.Set("Accept-Encoding", "identity")
					plain := server.get(t, path+tc.query, header)
					header.Set("Accept-Encoding", "gzip")
					got := server.get(t, path+tc.query, header)
					if plain.header.Get("Content-Encoding") != "" {
						t.Errorf("Content-Encoding %s for a client that reads none", plain.header.Get("Content-Encoding"))
					}
					if (len(plain.body) > 128<<10) != tc.compressed {
						t.Fatalf("the list has %d bytes, which does not show what this is to show", len(plain.body))
					}
					// Lists as YAML are limited, and for that reason made from the JSON of the library, which compresses.
					compressed := tc.compressed && f.name != "YAML"
					want := map[bool]string{true: "gzip"}[compressed]
					if encoding := got.header.Get("Content-Encoding"); encoding != want {
						t.Fatalf("Content-Encoding %q of %d bytes, want %q", encoding, len(plain.body), want)
					}
					if compressed {
						got.body = gunzip(t, got)
					}
					if !bytes.Equal(plain.body, got.body) {
						t.Errorf("%d bytes with gzip and %d without, want them equal", len(got.body), len(plain.body))
					}
				})
			}
		}
	}
}

func gunzip(t *testing.T, a answer) []byte {
	t.Helper()
	if vary := strings.Join(a.header.Values("Vary"), ", "); !strings.Contains(vary, "Accept-Encoding") {
		t.Errorf("Vary %q, want Accept-Encoding in it: a cache would give it to others", vary)
	}
	reader, err := gzip.NewReader(bytes.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.body) > len(data)/2 {
		t.Errorf("%d bytes compressed of %d, want less than half", len(a.body), len(data))
	}
	return data
}
