// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFollowMoves: an upgrade changes calls of commands that moved, and nothing else.
func TestFollowMoves(t *testing.T) {
	dir := t.TempDir()
	before := map[string]string{
		"go.mod": "module example.org/backup\n\ngo 1.26\n\ntool (\n\t" + kit + "/cmd/certgen\n\t" + kit +
			"/pkg/envtest/build\n\t" + kit + "/pkg/envtest/run\n\t" +
			kit + "/pkg/envtest/setup\n)\n",
		"Makefile": "run:\n\t@go run $(KIT)/pkg/envtest/build bin/run $(KIT)/pkg/envtest/run && exec " +
			"bin/run -server $(SERVER) -objects objects\ncontrolplane:\n\t@go run $(KIT)/pkg/envtest/setup etcd\n",
		"ci.sh":    "go run " + kit + "/pkg/envtest/setup\n",
		"kit/a.sh": "go run $(KIT)/pkg/envtest/setup\n",
		"README":   "pkg/envtest/setup\n",
	}
	want := map[string]string{
		"go.mod": "module example.org/backup\n\ngo 1.26\n\ntool (\n\t" + kit + "/cmd/certgen\n\t" + kit +
			"/cmd/local-up\n\t" + kit + "/cmd/setup-envtest\n)\n",
		"Makefile": "run:\n\t@go run $(KIT)/cmd/setup-envtest build bin/run $(KIT)/cmd/local-up && exec " +
			"bin/run --server $(SERVER) --objects objects\ncontrolplane:\n\t@go run $(KIT)/cmd/setup-envtest programs etcd\n",
		"ci.sh":    "go run " + kit + "/cmd/setup-envtest programs\n",
		"kit/a.sh": before["kit/a.sh"],
		"README":   before["README"],
	}
	for name, text := range before {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &project{dir: dir}
	for range 2 {
		if err := p.followMoves(); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for name := range before {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			got[name] = string(text)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
	}
}
