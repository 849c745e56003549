// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"cmp"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// kind reads a kind from its package.
func (p *project) kind(pkg string) (Kind, error) {
	dir := filepath.Join(p.dir, strings.TrimPrefix(pkg, p.module+"/"))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Kind{}, err
	}
	k := Kind{}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		s, err := readSource(filepath.Join(dir, entry.Name()))
		if err != nil {
			return Kind{}, err
		}
		k.read(s)
	}
	k.Controller = exists(p.controller(k))
	if k.Kind == "" || k.Plural == "" {
		return Kind{}, fmt.Errorf("%s has neither a registry.Kind with a Resource, nor a store with NewFunc and "+
			"DefaultQualifiedResource", p.shown(dir))
	}
	return k, nil
}

// read adds what a file describes.
func (k *Kind) read(s *source) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.CompositeLit); ok && k.readValue(s, lit) {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncDecl:
			k.readMethod(n)
		case *ast.KeyValueExpr:
			k.readField(n)
		case *ast.CompositeLit:
			k.readColumns(n)
		case *ast.ValueSpec:
			if n.Names[0].Name == "selectable" && len(n.Values) == 1 {
				for _, name := range keys(n.Values[0]) {
					k.Selectable = append(k.Selectable, Field{Path: name})
				}
			}
		}
		return true
	})
}

// readValue reads a literal registry.Kind[*VERSION.KIND]{...}.
func (k *Kind) readValue(s *source, lit *ast.CompositeLit) bool {
	index, ok := lit.Type.(*ast.IndexExpr)
	if !ok {
		return false
	}
	pointer, isPointer := index.Index.(*ast.StarExpr)
	if _, name, ok := selector(index.X); !ok || name != "Kind" || !isPointer {
		return false
	}
	alias, name, ok := selector(pointer.X)
	if !ok {
		return false
	}
	path := s.imports()[alias]
	k.Kind, k.hub, k.Namespaced = name, path[lastSlash(path)+1:], true
	if k.Plural, ok = stringOf(fieldOf(lit, "Resource")); !ok {
		k.Plural = plural(name)
	}
	if ident, ok := fieldOf(lit, "ClusterScoped").(*ast.Ident); ok && ident.Name == "true" {
		k.Namespaced = false
	}
	if source, ok := fieldOf(lit, "Source").(*ast.CompositeLit); ok {
		if index, ok := source.Type.(*ast.IndexExpr); ok {
			_, name, _ := selector(index.X)
			k.Source = strings.ToLower(name)
		}
	}
	k.ShortNames = texts(fieldOf(lit, "ShortNames"))
	for _, path := range keys(fieldOf(lit, "SelectableFields")) {
		k.Selectable = append(k.Selectable, Field{Path: path})
	}
	if subresources, ok := fieldOf(lit, "Subresources").(*ast.CompositeLit); ok {
		for _, element := range subresources.Elts {
			if kv, ok := element.(*ast.KeyValueExpr); ok {
				if name, ok := stringOf(kv.Key); ok {
					k.addSubresource(name, subresourceType(kv.Value))
				}
			}
		}
	}
	if columns, ok := fieldOf(lit, "Columns").(*ast.CompositeLit); ok {
		for _, element := range columns.Elts {
			if column, ok := element.(*ast.CompositeLit); ok {
				k.readColumns(column)
			}
		}
	}
	return true
}

func (k *Kind) addSubresource(name, kind string) {
	switch name {
	case "status":
		k.Status = true
	case "scale":
		k.Scale = true
	default:
		k.Others = append(k.Others, Subresource{name, kind})
	}
}

// subresourceType reads action, log or stream from a call such as registry.Action(cancel).
func subresourceType(value ast.Expr) string {
	call, ok := value.(*ast.CallExpr)
	if !ok {
		return ""
	}
	function := call.Fun
	if index, ok := function.(*ast.IndexExpr); ok { // registry.Stream[*v1.Widget](f)
		function = index.X
	}
	_, name, _ := selector(function)
	return map[string]string{"Action": "action", "Log": "log", "Stream": "stream"}[name]
}

// texts returns the elements of a list of strings.
func texts(e ast.Expr) []string {
	if lit, ok := e.(*ast.CompositeLit); ok {
		return textsOf(lit.Elts)
	}
	return nil
}

// textsOf returns the values of those that are string literals.
func textsOf(all []ast.Expr) []string {
	var out []string
	for _, e := range all {
		if text, ok := stringOf(e); ok {
			out = append(out, text)
		}
	}
	return out
}

func (k *Kind) readMethod(f *ast.FuncDecl) {
	if f.Recv == nil || f.Body == nil || len(f.Body.List) != 1 {
		return
	}
	ret, ok := f.Body.List[0].(*ast.ReturnStmt)
	if !ok || len(ret.Results) != 1 {
		return
	}
	switch f.Name.Name {
	case "NamespaceScoped":
		ident, ok := ret.Results[0].(*ast.Ident)
		k.Namespaced = ok && ident.Name == "true"
	case "ShortNames":
		k.ShortNames = append(k.ShortNames, texts(ret.Results[0])...)
	}
}

func (k *Kind) readField(kv *ast.KeyValueExpr) {
	if path, ok := stringOf(kv.Key); ok {
		if _, sub, ok := strings.Cut(path, "/"); ok {
			k.addSubresource(sub, "")
		}
		return
	}
	key, ok := kv.Key.(*ast.Ident)
	if !ok {
		return
	}
	switch key.Name {
	case "NewFunc":
		ast.Inspect(kv.Value, func(n ast.Node) bool {
			if lit, ok := n.(*ast.CompositeLit); ok {
				_, k.Kind, _ = selector(lit.Type)
			}
			return true
		})
	case "DefaultQualifiedResource":
		if call, ok := kv.Value.(*ast.CallExpr); ok && len(call.Args) == 1 {
			k.Plural, _ = stringOf(call.Args[0])
		}
	}
}

// readColumns returns the columns that this program wrote: their description is the path.
func (k *Kind) readColumns(lit *ast.CompositeLit) {
	name, ok := stringOf(fieldOf(lit, "Name"))
	if !ok {
		return
	}
	path, _ := stringOf(fieldOf(lit, "Description"))
	if name == "Name" || name == "Age" || fieldOf(lit, "Type") == nil {
		return
	}
	k.Columns = append(k.Columns, Field{Path: path})
}

// keys returns the keys of a map of strings.
func keys(e ast.Expr) []string {
	var names []ast.Expr
	if lit, ok := e.(*ast.CompositeLit); ok {
		for _, element := range lit.Elts {
			if kv, ok := element.(*ast.KeyValueExpr); ok {
				names = append(names, kv.Key)
			}
		}
	}
	return textsOf(names)
}

// differences returns how an existing kind differs from the wanted one.
func (k Kind) differences(want Kind) []error {
	var problems []error
	differ := func(what string, have, want any) {
		if fmt.Sprint(have) != fmt.Sprint(want) {
			problems = append(problems, fmt.Errorf("kind %s already exists with %s %v, not %v", k.Kind, what, have, want))
		}
	}
	scope := map[bool]string{true: "Namespaced", false: "Cluster"}
	differ("the plural", k.Plural, want.Plural)
	differ("the scope", scope[k.Namespaced], scope[want.Namespaced])
	differ("the subresources", k.subresources(), want.subresources())
	differ("the short names", k.ShortNames, want.ShortNames)
	differ("the selectable fields", paths(k.Selectable), paths(want.Selectable))
	differ("the columns", paths(k.Columns), paths(want.Columns))
	differ("the source", cmp.Or(k.Source, "etcd"), cmp.Or(want.Source, "etcd"))
	return problems
}

func (k Kind) subresources() []string {
	var out []string
	if k.Status {
		out = append(out, "status")
	}
	if k.Scale {
		out = append(out, "scale")
	}
	var others []string
	for _, s := range k.Others {
		others = append(others, s.String())
	}
	slices.Sort(others)
	return append(out, others...)
}

func paths(fields []Field) []string {
	var out []string
	for _, f := range fields {
		out = append(out, f.Path)
	}
	slices.Sort(out)
	return out
}
