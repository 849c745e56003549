// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The exit codes of scripts/vulncheck.sh.
const (
	clean       = 0
	found       = 3
	unavailable = 69
)

// object is a JSON object.
type object = map[string]any

// database writes a vulnerability database in which a function is vulnerable in every version of
// its module. The database is empty if module is empty. The format:
// https://go.dev/doc/security/vuln/database.
func database(t *testing.T, module, function string) string {
	t.Helper()
	const id, modified = "GO-9999-0001", "2026-01-02T03:04:05Z"
	modules, vulns := []object{}, []object{}
	files := map[string]any{"index/db.json": object{"modified": modified}}
	if module != "" {
		modules = append(modules, object{"path": module, "vulns": []object{{"id": id, "modified": modified}}})
		vulns = append(vulns, object{"id": id, "modified": modified})
		files["ID/"+id+".json"] = object{
			"schema_version": "1.3.1", "id": id, "modified": modified, "published": modified,
			"summary": "made by a test",
			"affected": []object{{
				"package":            object{"name": module, "ecosystem": "Go"},
				"ranges":             []object{{"type": "SEMVER", "events": []object{{"introduced": "0"}}}},
				"ecosystem_specific": object{"imports": []object{{"path": module, "symbols": []string{function}}}},
			}},
			"database_specific": object{"url": "https://pkg.go.dev/vuln/" + id},
		}
	}
	files["index/modules.json"], files["index/vulns.json"] = modules, vulns
	dir := t.TempDir()
	for name, content := range files {
		data, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return "file://" + dir
}

// TestVulncheck scans one small package, which marshals YAML, with test databases.
func TestVulncheck(t *testing.T) {
	none := "file://" + filepath.Join(t.TempDir(), "none")
	for name, tc := range map[string]struct {
		database string
		code     int
		want     []string
	}{
		"nothing known": {database(t, "", ""), clean, []string{"No vulnerabilities found."}},
		"a function called": {database(t, "sigs.k8s.io/yaml", "Marshal"), found,
			[]string{"GO-9999-0001", "sigs.k8s.io/yaml@v", "calls yaml.Marshal"}},
		"one not called": {database(t, "sigs.k8s.io/yaml", "YAMLToJSON"), clean,
			[]string{"Your code is affected by 0 vulnerabilities."}},
		"no database": {none, unavailable, []string{"nothing was checked", none, "VULNDB="}},
		// No process listens on this port: the system does not assign it to listeners that
		// request any free port.
		"no response": {"http://127.0.0.1:9", unavailable, []string{"nothing was checked",
			"http://127.0.0.1:9", "VULNDB="}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "./vulncheck.sh", "./internal/registration")
			cmd.Env = append(cmd.Environ(), "VULNDB="+tc.database)
			out, err := cmd.CombinedOutput()
			if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != tc.code {
				t.Errorf("got exit code %d, want %d\n%s", got, tc.code, out)
			}
			for _, want := range tc.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("got no %q in\n%s", want, out)
				}
			}
		})
	}
}
