// SPDX-License-Identifier: Apache-2.0

// Package scaffold creates a team's project, and adds and deletes its kinds, versions and groups.
// It reads what a project has from the project's Go files, which the team may change; no other
// record exists. It never overwrites a file.
package scaffold

import (
	"errors"
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
)

// kit is the module path of the kit.
const kit = "example.com/extension-apiserver"

// project is a team's project on disk, or a checkout of the kit with its sample.
type project struct {
	dir    string // of the module
	base   string // of the API in it: "" or "sample"
	module string
}

// openProject finds the project of a directory.
func openProject(dir string) (*project, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for at := dir; ; at = filepath.Dir(at) {
		for _, base := range []string{"", "sample"} {
			if _, err := os.Stat(filepath.Join(at, base, "api.go")); err != nil {
				continue
			}
			data, err := os.ReadFile(filepath.Join(at, "go.mod"))
			if err != nil {
				continue
			}
			return &project{dir: at, base: base, module: modfile.ModulePath(data)}, nil
		}
		if at == filepath.Dir(at) {
			return nil, fmt.Errorf(
				"find the project of %s: no directory above has go.mod and api.go; create a project with: scaffold new", dir)
		}
	}
}

// path returns the path of a file of the API.
func (p *project) path(elements ...string) string {
	return filepath.Join(append([]string{p.dir, p.base}, elements...)...)
}

// file returns the path of a file by its name, which is relative to the module.
func (p *project) file(name string) string { return filepath.Join(p.dir, name) }

// pkg returns the import path of a package of the API.
func (p *project) pkg(elements ...string) string {
	all := []string{p.module}
	if p.base != "" {
		all = append(all, p.base)
	}
	return strings.Join(append(all, elements...), "/")
}

// owned returns whether the project is a team's, with files of the kit in kit/.
func (p *project) owned() bool { return p.base == "" }

// served is a group as api.go lists it.
type served struct {
	Group
	kinds []string // packages of their storage
}

// groups reads the groups in api.go, with their kinds.
func (p *project) groups() ([]served, error) {
	api, err := readSource(p.path("api.go"))
	if err != nil {
		return nil, err
	}
	lists, err := groupLists(api)
	if err != nil {
		return nil, err
	}
	imports := api.imports()
	var out []served
	for _, lit := range lists {
		alias, _, ok := selector(fieldOf(lit, "Name"))
		if !ok {
			return nil, fmt.Errorf("%s: a group has no Name of the form PACKAGE.GroupName", p.shown(api.path))
		}
		g := served{Group: Group{Package: imports[alias][lastSlash(imports[alias])+1:]}}
		if g.Name, err = constant(p.path("apis", g.Package, "register.go"), "GroupName"); err != nil {
			return nil, err
		}
		kinds, ok := fieldOf(lit, "Kinds").(*ast.CompositeLit)
		if !ok {
			return nil, fmt.Errorf("%s: Kinds of the group %s is not a list", p.shown(api.path), g.Name)
		}
		for _, element := range kinds.Elts {
			if alias, ok := storageAlias(element); ok {
				g.kinds = append(g.kinds, imports[alias])
			}
		}
		out = append(out, g)
	}
	return out, nil
}

func (p *project) shown(path string) string {
	if rel, err := filepath.Rel(p.dir, path); err == nil {
		return rel
	}
	return path
}

// storageAlias returns the package of an element of Kinds: PACKAGE.Kind.NewStorage or
// PACKAGE.NewStorage. In a call or a function it returns the last one.
func storageAlias(e ast.Expr) (alias string, ok bool) {
	if alias, _, ok = selector(e); ok {
		return alias, true
	}
	ast.Inspect(e, func(n ast.Node) bool {
		sel, isSelector := n.(*ast.SelectorExpr)
		if !isSelector || sel.Sel.Name != "NewStorage" {
			return true
		}
		of := sel.X
		if kind, isKind := of.(*ast.SelectorExpr); isKind {
			of = kind.X
		}
		if name, isName := of.(*ast.Ident); isName {
			alias, ok = name.Name, true
		}
		return true
	})
	return alias, ok
}

// groupLists returns the elements of []apiserver.Group in api.go.
func groupLists(api *source) ([]*ast.CompositeLit, error) {
	list, err := groupList(api)
	if err != nil {
		return nil, err
	}
	var out []*ast.CompositeLit
	for _, element := range list.Elts {
		if lit, ok := element.(*ast.CompositeLit); ok {
			out = append(out, lit)
		}
	}
	return out, nil
}

func groupList(api *source) (*ast.CompositeLit, error) {
	var list *ast.CompositeLit
	api.find(func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if array, ok := lit.Type.(*ast.ArrayType); ok {
			if _, name, ok := selector(array.Elt); ok && name == "Group" {
				list = lit
			}
		}
		return list == nil
	})
	if list == nil {
		return nil, fmt.Errorf("%s: no list []apiserver.Group{...}", filepath.Base(api.path))
	}
	return list, nil
}

// constant returns the value of a string constant of a file.
func constant(path, name string) (string, error) {
	s, err := readSource(path)
	if err != nil {
		return "", err
	}
	for _, decl := range s.file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			if value, ok := spec.(*ast.ValueSpec); ok && value.Names[0].Name == name && len(value.Values) == 1 {
				if text, ok := stringOf(value.Values[0]); ok {
					return text, nil
				}
			}
		}
	}
	return "", fmt.Errorf("%s: no constant %s", path, name)
}

// group returns the group with the name, or the only group if the name is empty.
func (p *project) group(name string) (served, error) {
	groups, err := p.groups()
	if err != nil {
		return served{}, err
	}
	var names []string
	for _, g := range groups {
		if g.Name == name {
			return g, nil
		}
		names = append(names, g.Name)
	}
	switch {
	case name != "":
		return served{}, fmt.Errorf("group %q not found, expected one of %s", name, strings.Join(names, ", "))
	case len(groups) != 1:
		return served{}, fmt.Errorf("the project has the groups %s; set --group", strings.Join(names, ", "))
	}
	return groups[0], nil
}

// versions returns the versions of a group, in the order of install.go.
func (p *project) versions(g Group) ([]string, error) {
	s, list, err := p.versionList(g)
	if err != nil {
		return nil, err
	}
	imports := s.imports()
	var out []string
	for _, element := range list.Elts {
		out = append(out, versionOf(element, imports))
	}
	return out, nil
}

func versionOf(element ast.Expr, imports map[string]string) string {
	if lit, ok := element.(*ast.CompositeLit); ok {
		if alias, _, ok := selector(fieldOf(lit, "GroupVersion")); ok {
			return imports[alias][lastSlash(imports[alias])+1:]
		}
	}
	return ""
}

func (p *project) versionList(g Group) (*source, *ast.CompositeLit, error) {
	s, err := readSource(p.path("apis", g.Package, "install", "install.go"))
	if err != nil {
		return nil, nil, err
	}
	for _, decl := range s.file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			if value, ok := spec.(*ast.ValueSpec); ok && value.Names[0].Name == "Versions" && len(value.Values) == 1 {
				if lit, ok := value.Values[0].(*ast.CompositeLit); ok {
					return s, lit, nil
				}
			}
		}
	}
	return nil, nil, fmt.Errorf("%s: no list Versions", p.shown(s.path))
}

// kindFile returns the file that has the kind in a version, or "" if the version does not have it.
func (p *project) kindFile(g Group, version, kind string) (string, error) {
	dir := p.path("apis", g.Package, version)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasPrefix(entry.Name(), "zz_") ||
			strings.HasPrefix(entry.Name(), "generated") {
			continue
		}
		s, err := readSource(filepath.Join(dir, entry.Name()))
		if err != nil {
			return "", err
		}
		for _, decl := range s.file.Decls {
			if gen, ok := decl.(*ast.GenDecl); ok {
				for _, spec := range gen.Specs {
					if t, ok := spec.(*ast.TypeSpec); ok && t.Name.Name == kind {
						return s.path, nil
					}
				}
			}
		}
	}
	return "", nil
}

// exists returns whether a file or directory exists.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
