// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// addVersion adds a version to a group: a copy of the preferred one, and a line at the end of the list in install.go.
func (w work) addVersion(p *project, group, version string) error {
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
	if slices.Contains(versions, version) {
		fmt.Fprintf(w.out, "The version %s of %s is there already.\n", version, g.Name)
		return nil
	}
	if exists(p.path("apis", g.Package, version)) {
		return fmt.Errorf("%s is there, and is not served; remove it, or add its line to install.go",
			p.shown(p.path("apis", g.Package, version)))
	}
	return w.change(p, fmt.Sprintf(`Added the version %s, a copy of %s. Change its types; the
conversions of what has the same name are generated, others are yours
(https://pkg.go.dev/k8s.io/code-generator/cmd/conversion-gen), and TestRoundTrip names what one
loses. The first version in install.go is preferred and stored: let a release serve both before
another takes its place.`, version, versions[0]),
		func(p *project) error { return p.addVersion(g.Group, versions[0], version) })
}

func (p *project) addVersion(g Group, from, version string) error {
	names, err := filepath.Glob(p.path("apis", g.Package, from, "*.go"))
	if err != nil {
		return err
	}
	word := regexp.MustCompile(`\b` + regexp.QuoteMeta(from) + `\b`)
	to := p.path("apis", g.Package, version)
	if err := os.MkdirAll(to, 0o755); err != nil { //nolint:gosec // as Git makes it
		return err
	}
	hubs, err := p.hubs(g)
	if err != nil {
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
		switch base {
		case "doc.go":
			text = p.withPeers(g, text, hubs)
		case "register.go":
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

// hubs are the versions that the others are converted to: those of the Go types of the kinds.
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

// withPeers adds to a doc.go the tags of the conversions to the hubs.
func (p *project) withPeers(g Group, text []byte, hubs []string) []byte {
	for _, hub := range hubs {
		tag := "// +k8s:conversion-gen=" + p.pkg("apis", g.Package, hub) + "\n"
		if !bytes.Contains(text, []byte(tag)) {
			text = bytes.Replace(text, []byte("// +k8s:defaulter-gen="), []byte(tag+"// +k8s:defaulter-gen="), 1)
		}
	}
	return text
}

// withLocalBuilder adds to a register.go the name that generated conversions register with.
func withLocalBuilder(text []byte) []byte {
	if bytes.Contains(text, []byte("localSchemeBuilder")) {
		return text
	}
	return append(text, []byte("\n// localSchemeBuilder is the name that the generated conversions register with.\n"+
		"var localSchemeBuilder = &SchemeBuilder\n")...)
}

// renameVersion writes another version in the clause package, the package's comment, and string literals that are the
// version.
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

// deleteVersion removes a version.
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
		fmt.Fprintf(w.out, "There is no version %s of %s.\n", version, g.Name)
		return nil
	}
	problems := checkTools()
	switch {
	case len(versions) == 1:
		problems = append(problems, fmt.Errorf("%s is the only version of %s; add another first", version, g.Name))
	case n == 0:
		problems = append(problems,
			fmt.Errorf("%s is the first version in install.go, preferred and stored; move another there first, and "+
				"rewrite the stored objects (docs/add-a-resource.md of the kit)", version))
	}
	hubs, err := p.hubs(g.Group)
	if err != nil {
		return err
	}
	if slices.Contains(hubs, version) {
		problems = append(problems, fmt.Errorf("%s is the hub: the Go type of a kind in registry/%s is its, and the "+
			"other versions are converted to it", version, g.Package))
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
				fmt.Errorf("no other version has the kind %s; delete that first: scaffold kind delete %s", kind, kind))
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	return w.change(p, "Deleted the version "+version+".", func(p *project) error {
		s, list, err := p.versionList(g.Group)
		if err != nil {
			return err
		}
		return errors.Join(s.remove(list, n), s.unimport(p.pkg("apis", g.Package, version)), s.write(),
			os.RemoveAll(p.path("apis", g.Package, version)), os.RemoveAll(p.path("apis", "client")),
			p.deleteGenerated())
	})
}
