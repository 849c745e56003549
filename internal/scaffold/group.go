// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/gengo/v2/namer"
)

// addGroup adds a group with its first kind. A group without a kind cannot be served.
func (w work) addGroup(p *project, name string, k Kind) error {
	problems := slices.Concat(checkTools(), validateGroup(name), k.validate())
	groups, err := p.groups()
	if err != nil {
		return errors.Join(append(problems, err)...)
	}
	group := groupOf(name)
	for _, g := range groups {
		switch {
		case g.Name == name:
			pkg, have, err := p.find(g, k.Kind)
			if err != nil {
				return err
			}
			if pkg == "" {
				return fmt.Errorf("group %s already exists, without the kind %s; add the kind with: scaffold kind add "+
					"--group %s %s", name, k.Kind, name, k.Kind)
			}
			if err := errors.Join(have.differences(k)...); err != nil {
				return err
			}
			fmt.Fprintf(w.out, "Group %s with the kind %s already exists (unchanged).\n", name, k.Kind)
			return nil
		case g.Package == group.Package:
			problems = append(problems,
				fmt.Errorf("groups %s and %s have the same Go package %s; choose a group with another first label",
					g.Name, name, g.Package))
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	return w.change(p, "Added group "+name+" with the kind "+k.Kind+".", func(p *project) error {
		d, err := p.data(group, firstVersion, k)
		if err != nil {
			return err
		}
		if err := p.renderGroup(d); err != nil {
			return err
		}
		api, err := readSource(p.path("api.go"))
		if err != nil {
			return err
		}
		list, err := groupList(api)
		if err != nil {
			return err
		}
		if err := api.insert(list, fmt.Sprintf(`{
			Name:           %[1]s.GroupName,
			AddToScheme:    %[1]sinstall.AddToScheme,
			Validation:     %[1]svalidation.AddToScheme,
			StorageVersion: %[1]sinstall.StorageVersion().Version,
			Kinds: []registry.NewStorage{},
		}`, group.Package)); err != nil {
			return err
		}
		if err := errors.Join(api.importAs("", p.pkg("apis", group.Package)),
			api.importAs(group.Package+"install", p.pkg("apis", group.Package, "install")),
			api.importAs(group.Package+"validation", d.Validation), api.write()); err != nil {
			return err
		}
		return p.addKind(group, firstVersion, k)
	})
}

// renameGroup renames a group in all files of the project. Its Go packages keep their names.
func (w work) renameGroup(p *project, from, to string) error {
	problems := append(checkTools(), validateGroup(to)...)
	groups, err := p.groups()
	if err != nil {
		return errors.Join(append(problems, err)...)
	}
	names, renamed := map[string]bool{}, Group{Name: to}
	for _, g := range groups {
		names[g.Name] = true
		if g.Name == from {
			renamed.Package = g.Package
		}
	}
	switch {
	case !names[from] && names[to]:
		fmt.Fprintf(w.out, "Group %s already has this name (unchanged).\n", to)
		return nil
	case !names[from]:
		problems = append(problems, fmt.Errorf("group %q not found", from))
	case names[to]:
		problems = append(problems, fmt.Errorf("group %q already exists", to))
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	return w.change(p, "Renamed group "+from+" to "+to+". The server does not find objects that are stored "+
		"under the old name.",
		func(p *project) error { return p.replaceGroup(from, renamed) })
}

// replaceGroup replaces the name of a group in all files that the kit does not own.
func (p *project) replaceGroup(from string, renamed Group) error {
	names, err := walk(p.path())
	if err != nil {
		return err
	}
	// A longer name that contains this one is another group, except for the Lease of a controller.
	word := regexp.MustCompile(`(^|[^a-zA-Z0-9.-]|-controller\.)` + regexp.QuoteMeta(from) + `([^a-zA-Z0-9-]|$)`)
	reversed := regexp.MustCompile(`\b` + regexp.QuoteMeta(Group{Name: from}.Reversed()) + `\b`)
	for _, name := range names {
		if strings.HasPrefix(name, "kit/") || filepath.Base(name) == "go.sum" || filepath.Base(name) == "go.mod" {
			continue
		}
		path := p.path(name)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		changed := word.ReplaceAll(text, []byte("${1}"+renamed.Name+"${2}"))
		changed = reversed.ReplaceAll(changed, []byte(renamed.Reversed()))
		changed = renamed.keepGoName(changed)
		if string(changed) == string(text) {
			continue
		}
		if err := os.WriteFile(path, changed, 0o644); err != nil { //nolint:gosec // as Git writes it
			return err
		}
	}
	return nil
}

// keepGoName adds the tag +groupGoName to a doc.go with +groupName, so that generated clients keep
// the old name of a renamed group. Code that uses the clients, such as a controller, has the old
// name.
func (g Group) keepGoName(text []byte) []byte {
	tag := []byte("// +groupName=" + g.Name + "\n")
	if !g.OtherLabel() || bytes.Contains(text, []byte("\n// +groupGoName=")) {
		return text
	}
	return bytes.Replace(text, tag, append(tag, "// +groupGoName="+namer.IC(g.Package)+"\n"...), 1)
}
