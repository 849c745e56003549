// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/ast/astutil"
)

// addVersion adds a version to a group, at the end of the list in install.go. The version is a
// copy of the hub, or of the preferred version if the kinds have internal types. With hub it
// becomes the hub.
func (w work) addVersion(p *project, group, version string, hub bool) error {
	problems := append(validateVersion(version), checkTools()...)
	g, err := p.group(group)
	if err != nil {
		return errors.Join(append(problems, err)...)
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	versions, err := p.versions(g.Group)
	if err != nil {
		return err
	}
	hubs, err := p.hubs(g.Group)
	if err != nil {
		return err
	}
	if slices.Contains(versions, version) {
		if hub && !slices.Equal(hubs, []string{version}) {
			return fmt.Errorf("version %s of %s already exists and is not the hub; see docs/build/versions-and-conversion.md "+
				"of the kit", version, g.Name)
		}
		fmt.Fprintf(w.out, "Version %s of %s already exists (unchanged).\n", version, g.Name)
		return nil
	}
	if exists(p.path("apis", g.Package, version)) {
		return fmt.Errorf("%s already exists and is not served; remove it, or add its line to install.go",
			p.shown(p.path("apis", g.Package, version)))
	}
	from := versions[0]
	if len(hubs) > 0 {
		from = hubs[0]
	}
	if hub && len(hubs) != 1 {
		return fmt.Errorf("make %s the hub of %s: the kinds have the hubs %q, expected one", version, g.Name, hubs)
	}
	return w.change(p, fmt.Sprintf(`Added version %s, a copy of %s. Change its types, then run: make generate
It names the conversions that you must write; TestRoundTrip reports fields that a conversion loses. The first
version in install.go is preferred and stored. Serve both versions in one release before you move another
version to the first place.`, version, from),
		func(p *project) error {
			if hub {
				return errors.Join(p.addVersion(g.Group, from, version, nil), p.moveHub(g.Group, from, version))
			}
			return p.addVersion(g.Group, from, version, hubs)
		})
}

// addVersion copies a version. The copy converts to the hubs.
func (p *project) addVersion(g Group, from, version string, hubs []string) error {
	names, err := filepath.Glob(p.path("apis", g.Package, from, "*.go"))
	if err != nil {
		return err
	}
	word := regexp.MustCompile(`\b` + regexp.QuoteMeta(from) + `\b`)
	to := p.path("apis", g.Package, version)
	if err := os.MkdirAll(to, 0o755); err != nil { //nolint:gosec // as Git makes it
		return err
	}
	for _, name := range names {
		base := filepath.Base(name)
		if strings.HasPrefix(base, "zz_generated.") || strings.HasPrefix(base, "generated.") ||
			strings.HasSuffix(base, "_test.go") {
			continue
		}
		s, err := readSource(name)
		if err != nil {
			return err
		}
		text := renameVersion(s, word, version)
		switch {
		case base == "doc.go":
			text = p.withPeers(g, text, hubs)
		case base == "register.go" && len(hubs) > 0:
			text = withLocalBuilder(text)
		}
		if err := os.WriteFile(filepath.Join(to, base), text, 0o644); err != nil { //nolint:gosec // as Git writes it
			return err
		}
	}
	s, list, err := p.versionList(g)
	if err != nil {
		return err
	}
	if err := s.insert(list, fmt.Sprintf("{GroupVersion: %[1]s.SchemeGroupVersion, AddToScheme: %[1]s.AddToScheme}",
		version)); err != nil {
		return err
	}
	return errors.Join(s.importAs("", p.pkg("apis", g.Package, version)), s.write())
}

// moveHub makes a new version the hub.
func (p *project) moveHub(g Group, from, to string) error {
	versions, err := p.versions(g)
	if err != nil {
		return err
	}
	var files []string // that are for the hub
	for _, version := range versions {
		dir := p.path("apis", g.Package, version)
		switch version {
		case to:
			continue
		case from:
			err = errors.Join(edit(filepath.Join(dir, "register.go"), withLocalBuilder),
				edit(filepath.Join(dir, "doc.go"), func(text []byte) []byte {
					return p.withPeers(g, text, []string{to})
				}), p.checkPeer(g, from, to))
		default:
			err = edit(filepath.Join(dir, "doc.go"), func(text []byte) []byte {
				return bytes.Replace(text, p.peer(g, from), p.peer(g, to), 1)
			})
			err = errors.Join(err, p.checkPeer(g, version, to))
		}
		if err != nil {
			return err
		}
		conversions, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return err
		}
		files = append(files, conversions...)
	}
	err = filepath.WalkDir(p.path("registry"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".go" {
			files = append(files, path)
		}
		return err
	})
	for _, file := range files {
		if !strings.HasPrefix(filepath.Base(file), "zz_generated.") {
			err = errors.Join(err, p.followHub(g, file, from, to))
		}
	}
	return err
}

// followHub replaces the hub that a file imports, and renames its conversions for the new hub.
func (p *project) followHub(g Group, path, from, to string) error {
	s, err := readSource(path)
	if err != nil {
		return err
	}
	alias := ""
	for name, path := range s.imports() {
		if path == p.pkg("apis", g.Package, from) {
			alias = name
		}
	}
	if alias == "" {
		return nil
	}
	astutil.RewriteImport(s.fset, s.file, p.pkg("apis", g.Package, from), p.pkg("apis", g.Package, to))
	rename := func(ident *ast.Ident) {
		if ident != nil && ident.Name == from {
			ident.Name = to
		}
	}
	for _, spec := range s.file.Imports {
		if spec.Path.Value == strconv.Quote(p.pkg("apis", g.Package, to)) {
			rename(spec.Name)
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && alias == from {
			if ident, ok := sel.X.(*ast.Ident); ok {
				rename(ident)
			}
		}
		return true
	})
	if err := s.print(); err != nil {
		return err
	}
	s.text = conversionName.ReplaceAllFunc(s.text, func(name []byte) []byte {
		return bytes.Replace(name, []byte("_"+from+"_"), []byte("_"+to+"_"), 1)
	})
	return s.write()
}

// conversionName matches names of conversion functions, in code and comments.
var conversionName = regexp.MustCompile(`\b(auto)?Convert_\w+_To_\w+`)

// edit edits the text of a file.
func edit(path string, change func([]byte) []byte) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, change(text), 0o644) //nolint:gosec // as Git writes it
}

// hubs returns the versions whose Go types the kinds use. The other versions convert to them.
func (p *project) hubs(g Group) ([]string, error) {
	served, err := p.group(g.Name)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, pkg := range served.kinds {
		k, err := p.kind(pkg)
		if err != nil {
			continue // it has another form
		}
		if k.hub != "" && !slices.Contains(out, k.hub) {
			out = append(out, k.hub)
		}
	}
	return out, nil
}

// withPeers adds the tags for conversions to the hubs to a doc.go.
func (p *project) withPeers(g Group, text []byte, hubs []string) []byte {
	for _, hub := range hubs {
		if tag := p.peer(g, hub); !bytes.Contains(text, tag) {
			before := []byte("// +k8s:defaulter-gen=")
			text = bytes.Replace(text, before, slices.Concat(tag, before), 1)
		}
	}
	return text
}

// checkPeer returns an error if the doc.go of a version does not name the hub: it differs from what
// this program writes.
func (p *project) checkPeer(g Group, version, hub string) error {
	path := p.path("apis", g.Package, version, "doc.go")
	text, err := os.ReadFile(path)
	if err == nil && !bytes.Contains(text, p.peer(g, hub)) {
		err = fmt.Errorf("%s: no tag +k8s:conversion-gen to replace, and no line \"// +k8s:defaulter-gen="+
			"TypeMeta\" to insert it before", p.shown(path))
	}
	return err
}

// peer returns the line of doc.go that names a hub.
func (p *project) peer(g Group, hub string) []byte {
	return []byte("// +k8s:conversion-gen=" + p.pkg("apis", g.Package, hub) + "\n")
}

// withLocalBuilder adds the variable with which generated conversions register to a register.go.
func withLocalBuilder(text []byte) []byte {
	if bytes.Contains(text, []byte("localSchemeBuilder")) {
		return text
	}
	return append(text, []byte("\n// localSchemeBuilder is the name that the generated conversions register with.\n"+
		"var localSchemeBuilder = &SchemeBuilder\n")...)
}

// renameVersion replaces the version in the package clause, in comments, and in string literals
// that are the version.
func renameVersion(s *source, word *regexp.Regexp, version string) []byte {
	type span struct{ from, to int }
	spans := []span{{s.offset(s.file.Name.Pos()), s.offset(s.file.Name.End())}}
	for _, group := range s.file.Comments {
		spans = append(spans, span{s.offset(group.Pos()), s.offset(group.End())})
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok {
			if text, ok := stringOf(lit); ok && word.FindString(text) == text && text != "" {
				spans = append(spans, span{s.offset(lit.Pos()), s.offset(lit.End())})
			}
		}
		return true
	})
	slices.SortFunc(spans, func(a, b span) int { return b.from - a.from })
	text := slices.Clone(s.text)
	for _, at := range spans {
		text = slices.Concat(text[:at.from], word.ReplaceAll(text[at.from:at.to], []byte(version)), text[at.to:])
	}
	return text
}

// deleteVersion deletes a version.
func (w work) deleteVersion(p *project, group, version string) error {
	g, err := p.group(group)
	if err != nil {
		return err
	}
	versions, err := p.versions(g.Group)
	if err != nil {
		return err
	}
	n := slices.Index(versions, version)
	if n < 0 {
		fmt.Fprintf(w.out, "Version %s of %s not found (unchanged).\n", version, g.Name)
		return nil
	}
	problems := checkTools()
	switch {
	case len(versions) == 1:
		problems = append(problems, fmt.Errorf("delete version %s: it is the only version of %s; add another first",
			version, g.Name))
	case n == 0:
		problems = append(problems,
			fmt.Errorf("delete version %s: it is the stored version, the first in install.go; move another there first, and "+
				"rewrite the stored objects (docs/build/versions-and-conversion.md of the kit)", version))
	}
	hubs, err := p.hubs(g.Group)
	if err != nil {
		return err
	}
	if slices.Contains(hubs, version) {
		problems = append(problems, fmt.Errorf("delete version %s: it is the hub of the kinds in registry/%s; make "+
			"another version the hub first, such as with: scaffold version add VERSION --hub", version, g.Package))
	}
	kinds, err := p.kindsOf(g, version)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		if !slices.ContainsFunc(versions, func(other string) bool {
			file, err := p.kindFile(g.Group, other, kind)
			return other != version && err == nil && file != ""
		}) {
			problems = append(problems,
				fmt.Errorf("no other version has the kind %s; first run: scaffold kind delete %s", kind, kind))
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	return w.change(p, "Deleted version "+version+".", func(p *project) error {
		s, list, err := p.versionList(g.Group)
		if err != nil {
			return err
		}
		return errors.Join(s.remove(list, n), s.unimport(p.pkg("apis", g.Package, version)), s.write(),
			os.RemoveAll(p.path("apis", g.Package, version)), os.RemoveAll(p.path("apis", "client")),
			p.deleteGenerated())
	})
}
