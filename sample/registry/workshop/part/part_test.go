// SPDX-License-Identifier: Apache-2.0

package part

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestList checks which parts a file has, and that an unreadable file is an error and no empty list.
func TestList(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name, content string
		want          []string
		err           string
	}{
		{"stock", `[{"name": "bolt", "quantity": 7, "shelf": "B4"}, {"name": "gear"}]`, []string{"bolt 7 B4", "gear 0 "}, ""},
		{"empty", `[]`, nil, ""},
		{"no JSON", `bolt`, nil, "parse --parts-file"},
		{"missing", "", nil, "read --parts-file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &File{path: filepath.Join(dir, c.name)}
			if c.content != "" {
				if err := os.WriteFile(f.path, []byte(c.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			message := ""
			for p, err := range f.List(t.Context()) {
				if err != nil {
					message = err.Error()
					continue
				}
				got = append(got, fmt.Sprintf("%s %d %s", p.Name, p.Status.Quantity, p.Status.Shelf))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
			if !strings.Contains(message, c.err) || c.err == "" && message != "" {
				t.Errorf("got the error %q, want %q", message, c.err)
			}
		})
	}
}
