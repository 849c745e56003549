// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// removal describes the code that goes with a kind.
type removal struct {
	paths   []string          // files and folders
	clients string            // folder of the generated clients, beside the types
	group   string            // package of the kind's group
	api     *source           // api.go
	kinds   *ast.CompositeLit // the list of kinds in it
	n       int               // the index of the kind in the list

	generated map[string]bool // files
	names     map[string]bool // the kind's types, in lower case; generated clients have a file for each
}

// uses returns where other code of a project refers to the removed code, as FILE:LINE: NAME. It
// loads the whole project, because a compiler reports nothing of packages that import a package
// with errors. It ignores errors of the project, which the removal may be about to repair.
func (w work) uses(p *project, r *removal) ([]string, error) {
	patterns := []string{"./..."}
	if p.owned() {
		patterns = append(patterns, p.pkg("apis")+"/...") // another module
	}
	loaded, err := packages.Load(&packages.Config{
		Context: w.ctx, Dir: p.dir, Tests: true, Env: append(os.Environ(), goEnv()...),
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedTypesInfo,
	}, patterns...)
	if w.ctx.Err() != nil {
		return nil, errors.New("interrupted; nothing was changed")
	}
	if err != nil {
		return nil, err
	}
	loaded = slices.DeleteFunc(loaded, func(pkg *packages.Package) bool { return pkg.TypesInfo == nil })
	r.survey(loaded)
	var found []token.Position
	names := map[token.Position]string{}
	for _, pkg := range loaded {
		for ident, object := range pkg.TypesInfo.Uses {
			at := pkg.Fset.Position(ident.Pos())
			if !r.goes(pkg.Fset, object) || r.generated[at.Filename] || r.removes(at) {
				continue
			}
			if at.Filename, err = filepath.Rel(p.dir, at.Filename); err != nil {
				return nil, err
			}
			if _, again := names[at]; !again { // a package is loaded with and without its tests
				found, names[at] = append(found, at), ident.Name
			}
		}
	}
	slices.SortFunc(found, func(a, b token.Position) int {
		return cmp.Or(cmp.Compare(a.Filename, b.Filename), cmp.Compare(a.Offset, b.Offset))
	})
	found = slices.CompactFunc(found, func(a, b token.Position) bool {
		return a.Filename == b.Filename && a.Line == b.Line
	})
	var out []string
	for _, at := range found {
		out = append(out, fmt.Sprintf("%s:%d: %s", at.Filename, at.Line, names[at]))
	}
	return out, nil
}

// survey finds generated files, and the names of the kind's types.
func (r *removal) survey(loaded []*packages.Package) {
	r.names, r.generated = map[string]bool{}, map[string]bool{}
	for _, pkg := range loaded {
		for _, file := range pkg.Syntax {
			if ast.IsGenerated(file) {
				r.generated[pkg.Fset.Position(file.Package).Filename] = true
			}
		}
		for _, object := range pkg.TypesInfo.Defs {
			name, ok := object.(*types.TypeName)
			if !ok {
				continue
			}
			at := pkg.Fset.Position(name.Pos())
			if strings.HasPrefix(at.Filename, filepath.Dir(r.clients)) && r.removes(at) {
				r.names[strings.ToLower(name.Name())] = true
			}
		}
	}
}

// removes returns whether a position is in the removed code.
func (r *removal) removes(at token.Position) bool {
	if at.Filename == r.api.path {
		element := r.kinds.Elts[r.n]
		return r.api.offset(element.Pos()) <= at.Offset && at.Offset < r.api.offset(element.End())
	}
	return slices.ContainsFunc(r.paths, func(path string) bool {
		return at.Filename == path || strings.HasPrefix(at.Filename, path+string(filepath.Separator))
	})
}

// goes returns whether an object goes with the kind: it is in removed code, or in generated code of
// it.
func (r *removal) goes(fset *token.FileSet, object types.Object) bool {
	at := fset.Position(object.Pos())
	if r.removes(at) {
		return true
	}
	if !r.generated[at.Filename] {
		return false
	}
	if client, ok := strings.CutPrefix(at.Filename, r.clients); ok {
		dir, base := filepath.Split(client)
		base = strings.TrimSuffix(strings.TrimPrefix(base, "fake_"), ".go")
		if strings.Contains(dir, "/"+r.group+"/") && r.names[base] {
			return true
		}
	}
	function, ok := object.(*types.Func)
	return ok && r.mentions(fset, function.Signature())
}

// mentions returns whether a function receives or returns a type that goes with the kind.
func (r *removal) mentions(fset *token.FileSet, signature *types.Signature) bool {
	variables := slices.Concat(slices.Collect(signature.Params().Variables()),
		slices.Collect(signature.Results().Variables()))
	if receiver := signature.Recv(); receiver != nil {
		variables = append(variables, receiver)
	}
	return slices.ContainsFunc(variables, func(v *types.Var) bool {
		t := v.Type()
		for {
			switch of := t.(type) {
			case *types.Named:
				return r.goes(fset, of.Obj())
			case interface{ Elem() types.Type }: // a pointer, slice or map
				t = of.Elem()
			default:
				return false
			}
		}
	})
}
