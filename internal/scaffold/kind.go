// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"errors"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// addKind adds a kind to a group, in one version. A kind that exists with the same arguments stays
// unchanged, but gets the controller and the roles that it lacks.
func (w work) addKind(p *project, group, version string, k Kind) error {
	g, err := p.group(group)
	if err != nil {
		return errors.Join(append([]error{err}, k.validate()...)...)
	}
	if k.onlyExtras() {
		if pkg, have, err := p.find(g, k.Kind); err == nil && pkg != "" {
			have.Controller, have.Roles = k.Controller, k.Roles
			k = have
		}
	}
	problems := append(checkTools(), k.validate()...)
	versions, err := p.versions(g.Group)
	if err != nil {
		return err
	}
	if version == "" {
		version = versions[0]
	} else if !slices.Contains(versions, version) {
		problems = append(problems, fmt.Errorf("version %q of %s not found, expected one of %s", version, g.Name,
			strings.Join(versions, ", ")))
	}
	there, more := p.collisions(g, k)
	if problems = append(problems, more...); len(problems) > 0 {
		return errors.Join(problems...)
	}
	if there && !p.lacks(k) {
		fmt.Fprintf(w.out, "Kind %s already exists (unchanged).\n", k.Kind)
		return nil
	}
	if there {
		return w.change(p, "Added to kind "+k.Kind+". Run: make test", func(p *project) error {
			d, err := p.data(g.Group, version, k)
			return errors.Join(err, p.renderExtras(d))
		})
	}
	return w.change(p, "Added kind "+k.Kind+". Its fields are in "+p.shown(
		p.path("apis", g.Package, version, k.Package()+".go"))+". Run: make test",
		func(p *project) error { return p.addKind(g.Group, version, k) })
}

// onlyExtras returns whether the flags ask for a controller or roles, and describe nothing of the
// kind besides its name.
func (k Kind) onlyExtras() bool {
	return (k.Controller || k.Roles) && k.Namespaced && k.Plural == plural(k.Kind) && !k.Status && !k.Scale &&
		k.Source == "" && len(k.Others)+len(k.ShortNames)+len(k.Selectable)+len(k.Columns) == 0
}

// lacks returns whether the project lacks the controller or the roles that the flags ask for.
func (p *project) lacks(k Kind) bool {
	return k.Controller && !exists(p.controller(k)) || k.Roles && !exists(p.path("manifests", "roles"))
}

// collisions returns whether the kind exists, and errors for names that other kinds have.
func (p *project) collisions(g served, k Kind) (there bool, problems []error) {
	for _, pkg := range g.kinds {
		have, err := p.kind(pkg)
		if err != nil {
			continue // it has another form, and other names
		}
		switch {
		case have.Kind == k.Kind:
			return true, have.differences(k)
		case have.Package() == k.Package():
			problems = append(problems, fmt.Errorf("kinds %s and %s have the same name in lower case",
				have.Kind, k.Kind))
		}
		names := append([]string{have.Plural, have.Singular()}, have.ShortNames...)
		for _, name := range append([]string{k.Plural, k.Singular()}, k.ShortNames...) {
			if slices.Contains(names, name) {
				problems = append(problems,
					fmt.Errorf("name %q of %s: already used by the kind %s; choose another with --plural or --short-names",
						name, k.Kind, have.Kind))
			}
		}
	}
	return false, problems
}

func (p *project) addKind(g Group, version string, k Kind) error {
	d, err := p.data(g, version, k)
	if err != nil {
		return err
	}
	if err := errors.Join(p.renderKind(d), p.listKind(g, k), p.listActions(k)); err != nil {
		return err
	}
	api, kinds, err := p.kindList(g)
	if err != nil {
		return err
	}
	if stores, err := p.storesObjects(); err != nil {
		return err
	} else if !stores && k.Source == "" {
		if err := p.addStorage(); err != nil {
			return err
		}
	}
	alias := d.Alias()
	if _, taken := api.imports()[alias]; taken {
		alias = g.Package + k.Package() + "storage" // another group has a kind of the same name
	}
	if err := api.insert(kinds, alias+".Kind.NewStorage"); err != nil {
		return err
	}
	name := alias
	if alias == k.Package() {
		name = ""
	}
	if err := api.importAs(name, p.pkg("registry", g.Package, k.Package())); err != nil {
		return err
	}
	return api.write()
}

// storesObjects returns whether a kind in api.go is stored in etcd.
func (p *project) storesObjects() (bool, error) {
	groups, err := p.groups()
	if err != nil {
		return false, err
	}
	for _, g := range groups {
		for _, pkg := range g.kinds {
			if k, err := p.kind(pkg); err != nil || k.Source == "" { // storage that is not generated may need etcd
				return true, nil
			}
		}
	}
	return false, nil
}

// actionBodies finds the map of api_test.go with the bodies of actions; older projects have none.
func (p *project) actionBodies() (*source, *ast.CompositeLit, error) {
	path := p.path("api_test.go")
	if !exists(path) {
		return nil, nil, nil
	}
	test, err := readSource(path)
	if err != nil {
		return nil, nil, err
	}
	var bodies *ast.CompositeLit
	test.find(func(n ast.Node) bool {
		value, ok := n.(*ast.ValueSpec)
		if ok && value.Names[0].Name == "actions" && len(value.Values) == 1 {
			bodies, _ = value.Values[0].(*ast.CompositeLit)
		}
		return bodies == nil
	})
	return test, bodies, nil
}

// listActions adds the bodies of a kind's actions to the conformance test.
func (p *project) listActions(k Kind) error {
	test, bodies, err := p.actionBodies()
	if err != nil || bodies == nil || len(k.Actions()) == 0 {
		return err
	}
	if err := test.insert(bodies, k.ActionBodies()); err != nil {
		return err
	}
	return test.write()
}

// unlistActions removes the bodies of a kind's actions from the conformance test.
func (p *project) unlistActions(k Kind) error {
	test, bodies, err := p.actionBodies()
	if err != nil || bodies == nil {
		return err
	}
	n := slices.IndexFunc(bodies.Elts, func(e ast.Expr) bool {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return false
		}
		name, _ := stringOf(kv.Key)
		return name == k.Kind
	})
	if n < 0 {
		return nil
	}
	if err := test.remove(bodies, n); err != nil {
		return err
	}
	return test.write()
}

// kindList finds the list of the kinds of a group in api.go.
func (p *project) kindList(g Group) (*source, *ast.CompositeLit, error) {
	api, err := readSource(p.path("api.go"))
	if err != nil {
		return nil, nil, err
	}
	lists, err := groupLists(api)
	if err != nil {
		return nil, nil, err
	}
	for _, lit := range lists {
		if alias, _, ok := selector(fieldOf(lit, "Name")); ok &&
			strings.HasSuffix(api.imports()[alias], "/apis/"+g.Package) {
			if kinds, ok := fieldOf(lit, "Kinds").(*ast.CompositeLit); ok {
				return api, kinds, nil
			}
		}
	}
	return nil, nil, fmt.Errorf("%s: no list of the kinds of %s", p.shown(api.path), g.Name)
}

// deleteKind removes a kind with its files and its clients.
func (w work) deleteKind(p *project, group, kind string) error {
	g, err := p.group(group)
	if err != nil {
		return err
	}
	pkg, k, err := p.find(g, kind)
	if err != nil {
		return err
	}
	if pkg == "" {
		fmt.Fprintf(w.out, "Kind %s not found in %s (unchanged).\n", kind, g.Name)
		return nil
	}
	if len(g.kinds) == 1 {
		return fmt.Errorf("delete kind %s: it is the only kind of %s; add another kind "+
			"first", kind, g.Name)
	}
	versions, err := p.versions(g.Group)
	if err != nil {
		return err
	}
	var problems []error
	for _, version := range versions {
		if others, err := p.kindsOf(g, version); err == nil && len(others) == 1 && others[0] == kind {
			problems = append(problems,
				fmt.Errorf("delete kind %s: it is the only kind of the version %s; first run: scaffold version delete %s", kind,
					version, version))
		}
	}
	if problems = append(problems, checkTools()...); len(problems) > 0 {
		return errors.Join(problems...)
	}
	if k.Source == "" {
		fmt.Fprintf(w.out, "Objects that are stored stay in etcd. Before you roll out the server without the kind, delete "+
			"them in each cluster: kubectl delete %s\n", k.allObjects(g.Group))
	}
	gone, err := p.removal(g.Group, pkg, k, versions)
	if err != nil {
		return err
	}
	if err := w.checkUses(p, gone, kind); err != nil {
		return err
	}
	return w.change(p, "Deleted kind "+kind+".",
		func(p *project) error { return p.deleteKind(g.Group, pkg, k, versions) })
}

// checkUses returns an error if other code uses a kind that is to be deleted.
func (w work) checkUses(p *project, gone *removal, kind string) error {
	var uses []string
	err := w.step("Finding uses of the kind", func() (err error) {
		uses, err = w.uses(p, gone)
		return err
	})
	if err == nil && len(uses) > 0 {
		err = fmt.Errorf("delete kind %s: other code uses it; nothing was changed; change these lines first:\n%s", kind,
			strings.Join(uses, "\n"))
	}
	return err
}

// allObjects returns the arguments with which kubectl delete deletes all objects of a kind.
func (k Kind) allObjects(g Group) string {
	if k.Namespaced {
		return k.Plural + "." + g.Name + " --all --all-namespaces"
	}
	return k.Plural + "." + g.Name + " --all"
}

// find returns a kind and its package, or no package if the kind does not exist.
func (p *project) find(g served, kind string) (string, Kind, error) {
	var unreadable []error // such as storage that is not generated
	for _, pkg := range g.kinds {
		k, err := p.kind(pkg)
		if err != nil {
			unreadable = append(unreadable, err)
		} else if k.Kind == kind {
			return pkg, k, nil
		}
	}
	return "", Kind{}, errors.Join(unreadable...)
}

// kindsOf returns the kinds of a version.
func (p *project) kindsOf(g served, version string) ([]string, error) {
	var out []string
	for _, pkg := range g.kinds {
		k, err := p.kind(pkg)
		if err != nil {
			continue // storage that is not generated
		}
		file, err := p.kindFile(g.Group, version, k.Kind)
		if err != nil {
			return nil, err
		}
		if file != "" {
			out = append(out, k.Kind)
		}
	}
	return out, nil
}

// removal returns what the deletion of a kind removes.
func (p *project) removal(g Group, pkg string, k Kind, versions []string) (*removal, error) {
	api, kinds, err := p.kindList(g)
	if err != nil {
		return nil, err
	}
	imports := api.imports()
	n := slices.IndexFunc(kinds.Elts, func(e ast.Expr) bool {
		alias, ok := storageAlias(e)
		return ok && imports[alias] == pkg
	})
	if n < 0 {
		return nil, fmt.Errorf("%s: no line of the kind %s", p.shown(api.path), k.Kind)
	}
	r := &removal{
		api: api, kinds: kinds, n: n, clients: p.path("apis", "client"), group: g.Package,
		paths: []string{
			p.file(strings.TrimPrefix(pkg, p.module+"/")), p.path("objects", k.Package()+".yaml"), p.controller(k),
			p.controllerManifests(k),
		},
	}
	for _, version := range append([]string{""}, versions...) {
		file, err := p.kindFile(g, version, k.Kind)
		if err != nil {
			return nil, err
		}
		if file == "" {
			continue
		}
		more, err := filepath.Glob(strings.TrimSuffix(file, ".go") + "_*.go")
		if err != nil {
			return nil, err
		}
		r.paths = append(append(r.paths, file), more...)
	}
	return r, nil
}

func (p *project) deleteKind(g Group, pkg string, k Kind, versions []string) error {
	r, err := p.removal(g, pkg, k, versions)
	if err != nil {
		return err
	}
	if err := errors.Join(r.api.remove(r.kinds, r.n), r.api.unimport(pkg), r.api.write(), p.unlistKind(g, k),
		p.unlistActions(k), p.removeComponent(filepath.Base(p.controllerManifests(k)))); err != nil {
		return err
	}
	// Generated code of the deleted kind would not compile, so all of it is generated again.
	for _, path := range append(r.paths, r.clients) {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return p.deleteGenerated()
}

// deleteGenerated removes generated code that does not compile after types were deleted or renamed.
func (p *project) deleteGenerated() error {
	names, err := walk(p.path("apis"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(filepath.Base(name), "zz_generated.") {
			if err := os.Remove(p.path("apis", name)); err != nil {
				return err
			}
		}
	}
	return nil
}
