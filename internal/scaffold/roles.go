// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"os"
	"path/filepath"
	"strings"
)

// addRoles adds the component with the roles for users to each overlay that has names. generate writes the roles.
func (p *project) addRoles() error {
	if err := render(p.path("manifests", "roles", "kustomization.yaml"), "project/manifests-roles.yaml",
		data{}); err != nil {
		return err
	}
	overlays, err := filepath.Glob(p.path("manifests", "*", "kustomization.yaml"))
	if err != nil {
		return err
	}
	for _, path := range overlays {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		before, after, found := strings.Cut(string(text), "\n- ../names\n")
		if !found || strings.Contains(before, "\n- ../roles\n") {
			continue
		}
		// The comment about the names stays with them.
		if i := strings.LastIndex(before, "\n"); strings.HasPrefix(before[i+1:], "#") {
			before, after = before[:i], before[i:]+"\n- ../names\n"+after
		} else {
			after = "\n- ../names\n" + after
		}
		if err := os.WriteFile(path, []byte(before+"\n- ../roles"+after), 0o644); err != nil { //nolint:gosec // as Git writes it
			return err
		}
	}
	return nil
}

// writeRoles writes the roles for users, if the project has them.
func (w work) writeRoles(p *project, env []string) error {
	dir := p.path("manifests", "roles")
	if !exists(dir) {
		return nil
	}
	roles, err := w.output(p.dir, env, "go", "run", "./cmd/"+p.server(), "roles", "--prefix=apiserver")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "roles.yaml"), roles, 0o644) //nolint:gosec // as Git writes it
}
