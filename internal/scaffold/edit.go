// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"strconv"

	"golang.org/x/tools/go/ast/astutil"
)

// source is a Go file with its syntax tree.
type source struct {
	path string
	text []byte
	fset *token.FileSet
	file *ast.File
}

func readSource(path string) (*source, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &source{path: path, text: text}
	return s, s.parse()
}

func (s *source) parse() (err error) {
	s.fset = token.NewFileSet()
	s.file, err = parser.ParseFile(s.fset, s.path, s.text, parser.ParseComments|parser.SkipObjectResolution)
	return err
}

func (s *source) offset(p token.Pos) int { return s.fset.Position(p).Offset }

// replace replaces the text between two offsets.
func (s *source) replace(from, to int, text string) error {
	s.text = bytes.Join([][]byte{s.text[:from], []byte(text), s.text[to:]}, nil)
	return s.parse()
}

// insert adds an element at the end of a composite literal, on its own line if the other elements
// have theirs.
func (s *source) insert(list *ast.CompositeLit, element string) error {
	if len(list.Elts) == 0 {
		return s.replace(s.offset(list.Lbrace)+1, s.offset(list.Rbrace), "\n"+element+",\n")
	}
	last := list.Elts[len(list.Elts)-1]
	separator := ", "
	if s.fset.Position(list.Lbrace).Line != s.fset.Position(last.End()).Line {
		separator = ",\n"
	}
	return s.replace(s.offset(last.End()), s.offset(last.End()), separator+element)
}

// remove removes the nth element of a composite literal.
func (s *source) remove(list *ast.CompositeLit, n int) error {
	element := list.Elts[n]
	switch {
	case n > 0:
		return s.replace(s.offset(list.Elts[n-1].End()), s.offset(element.End()), "")
	case len(list.Elts) > 1:
		return s.replace(s.offset(element.Pos()), s.offset(list.Elts[1].Pos()), "")
	}
	return s.replace(s.offset(list.Lbrace)+1, s.offset(list.Rbrace), "")
}

// imports returns the path of each import by its name in the file.
func (s *source) imports() map[string]string {
	out := map[string]string{}
	for _, spec := range s.file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value) // the parser did
		name := path[lastSlash(path)+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		out[name] = path
	}
	return out
}

func lastSlash(path string) int {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return i
		}
	}
	return -1
}

// importAs adds an import. An empty name means the last element of the path.
func (s *source) importAs(name, path string) error {
	astutil.AddNamedImport(s.fset, s.file, name, path)
	return s.print()
}

func (s *source) unimport(path string) error {
	for name, have := range s.imports() {
		if have != path {
			continue
		}
		if !astutil.DeleteImport(s.fset, s.file, path) {
			astutil.DeleteNamedImport(s.fset, s.file, name, path)
		}
	}
	return s.print()
}

// print formats the tree as text.
func (s *source) print() error {
	var out bytes.Buffer
	if err := format.Node(&out, s.fset, s.file); err != nil {
		return fmt.Errorf("format %s: %w", s.path, err)
	}
	s.text = out.Bytes()
	return s.parse()
}

// write formats the text and writes the file.
func (s *source) write() error {
	out, err := format.Source(s.text)
	if err != nil {
		return fmt.Errorf("format %s: %w", s.path, err)
	}
	return os.WriteFile(s.path, out, 0o644) //nolint:gosec // as Git writes it
}

// find calls visit for each node until it returns false.
func (s *source) find(visit func(ast.Node) bool) {
	found := false
	ast.Inspect(s.file, func(n ast.Node) bool {
		if n != nil && !found && !visit(n) {
			found = true
		}
		return !found
	})
}

// stringOf returns the value of a string literal.
func stringOf(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(lit.Value)
	return value, err == nil
}

// selector returns the parts of an expression X.Name.
func selector(e ast.Expr) (x, name string, ok bool) {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", "", false
	}
	ident, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", "", false
	}
	return ident.Name, sel.Sel.Name, true
}

// fieldOf returns the value of a field of a struct literal.
func fieldOf(lit *ast.CompositeLit, name string) ast.Expr {
	for _, element := range lit.Elts {
		if kv, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok && key.Name == name {
				return kv.Value
			}
		}
	}
	return nil
}
