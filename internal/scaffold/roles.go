// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"os"
	"path/filepath"
	"strings"
)

// addRoles adds the component with roles for users, unless the project has it. generate writes the
// roles.
func (p *project) addRoles() error {
	path := p.path("manifests", "roles", "kustomization.yaml")
	if !exists(path) {
		if err := render(path, "project/manifests-roles.yaml", data{}); err != nil {
			return err
		}
	}
	return p.addComponent("roles")
}

// addComponent adds a folder of manifests to each overlay, before the names.
func (p *project) addComponent(name string) error {
	line := "- ../" + name + "\n"
	return p.editOverlays(func(text string) string {
		before, after, found := strings.Cut(text, "\n- ../names\n")
		if !found || strings.Contains(before, "\n"+line) {
			return text
		}
		after = "- ../names\n" + after
		// The comment above names stays with names.
		if i := strings.LastIndex(before, "\n"); strings.HasPrefix(before[i+1:], "#") {
			before, after = before[:i], before[i+1:]+"\n"+after
		}
		return before + "\n" + line + after
	})
}

// addStorage adds the component for storage to each overlay that has none.
func (p *project) addStorage() error {
	const components = "- ../../kit/manifests/components/"
	return p.editOverlays(func(text string) string {
		if strings.Contains(text, components+"embedded-storage\n") || strings.Contains(text, components+"external-etcd\n") ||
			!strings.Contains(text, components+"certificates-") {
			return text
		}
		storage := "embedded-storage"
		if strings.Contains(text, components+"high-availability\n") {
			storage = "external-etcd"
		}
		return strings.Replace(text, "\ncomponents:\n", "\ncomponents:\n"+components+storage+"\n", 1)
	})
}

// removeComponent removes a folder of manifests from each overlay.
func (p *project) removeComponent(name string) error {
	return p.editOverlays(func(text string) string {
		return strings.Replace(text, "\n- ../"+name+"\n", "\n", 1)
	})
}

func (p *project) editOverlays(edit func(string) string) error {
	overlays, err := filepath.Glob(p.path("manifests", "*", "kustomization.yaml"))
	if err != nil {
		return err
	}
	for _, path := range overlays {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if edited := edit(string(text)); edited != string(text) {
			if err := os.WriteFile(path, []byte(edited), 0o644); err != nil { //nolint:gosec // as Git writes it
				return err
			}
		}
	}
	return nil
}

// writeRoles writes the roles for users, if the project has the component.
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
