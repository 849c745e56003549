// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed templates
var files embed.FS

// The delimiters differ from Go's syntax, since most templates are Go code.
var templates = func() map[string]*template.Template {
	out := map[string]*template.Template{}
	for _, dir := range []string{"project", "group", "version", "kind", "source", "controller"} {
		entries, err := files.ReadDir("templates/" + dir)
		if err != nil {
			panic(err) // it is embedded
		}
		for _, entry := range entries {
			name := dir + "/" + strings.TrimSuffix(entry.Name(), ".tmpl")
			text, err := files.ReadFile("templates/" + dir + "/" + entry.Name())
			if err != nil {
				panic(err)
			}
			out[name] = template.Must(template.New(name).Delims("<%", "%>").Option("missingkey=error").Parse(
				string(text)))
		}
	}
	return out
}()

// kindData is an alias of Kind, so that data can embed it beside the field Kind.
type kindData = Kind

// data is the input of the templates.
type data struct {
	kindData
	Group       Group
	Version     string
	Kit         string
	Module      string // of the project
	APIs        string // import path of the folder apis
	Registry    string // import path of the folder registry
	Validation  string // import path of the group's generated validation; empty if it is beside the types
	Server      string // import path of its command
	Header      string // of each Go file
	Name        string // of the server
	RootPackage string
	Namespace   string
	Prefix      string
	Go          string
	Replace     bool
}

// Type returns the Go type of the kind's objects, such as *v1.BackupPlan.
func (d data) Type() string { return "*" + d.Version + "." + d.Kind }

// Alias returns the name under which api.go imports the kind's package.
func (d data) Alias() string {
	if name := d.Package(); name != d.Group.Package {
		return name
	}
	return d.Package() + "storage"
}

// render writes a file from a template. It returns an error if the file exists with other content.
func render(path, name string, d data) error {
	var out bytes.Buffer
	if err := templates[name].Execute(&out, d); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	text := out.Bytes()
	if strings.HasSuffix(path, ".go") {
		formatted, err := format.Source(append([]byte(d.Header), text...))
		if err != nil {
			return fmt.Errorf("format %s: %w", path, err)
		}
		text = formatted
	}
	if have, err := os.ReadFile(path); err == nil {
		if bytes.Equal(have, text) {
			return nil
		}
		return fmt.Errorf("%s already exists with other content; remove it, or rename the kind", path)
	}
	mode := os.FileMode(0o644)
	if strings.HasSuffix(path, ".sh") {
		mode = 0o755
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as Git makes it
		return err
	}
	return os.WriteFile(path, text, mode)
}

// renderKind writes the files of a kind in one version.
func (p *project) renderKind(d data) error {
	pkg, file, from := d.Group.Package, d.Package(), "kind"
	if d.Source != "" {
		from = "source"
	}
	for path, name := range map[string]string{
		p.path("apis", pkg, d.Version, file+".go"):     "kind/versioned.go",
		p.path("registry", pkg, file, file+".go"):      from + "/kind.go",
		p.path("registry", pkg, file, file+"_test.go"): from + "/kind_test.go",
		p.path("objects", file+".yaml"):                from + "/object.yaml",
	} {
		if err := render(path, name, d); err != nil {
			return err
		}
	}
	return p.renderExtras(d)
}

// renderExtras writes the roles and the controller of a kind, if it has them.
func (p *project) renderExtras(d data) error {
	if d.Roles {
		if err := p.addRoles(); err != nil {
			return err
		}
	}
	if !d.Controller {
		return nil
	}
	for dir, names := range map[string][]string{
		p.controller(d.kindData):          {"controller.go", "controller_test.go", "main.go"},
		p.controllerManifests(d.kindData): {"kustomization.yaml", "deployment.yaml", "networkpolicy.yaml", "rbac.yaml"},
	} {
		for _, name := range names {
			if err := render(filepath.Join(dir, name), "controller/"+name, d); err != nil {
				return err
			}
		}
	}
	return p.addComponent(filepath.Base(p.controllerManifests(d.kindData)))
}

// controller returns the folder of a kind's controller.
func (p *project) controller(k Kind) string { return p.path("cmd", k.Package()+"-controller") }

// controllerManifests returns the name of the component that deploys a kind's controller.
func (p *project) controllerManifests(k Kind) string {
	return p.path("manifests", k.Package()+"-controller")
}

// data returns the input of the templates for a kind in one version of a group.
func (p *project) data(g Group, version string, k Kind) (data, error) {
	d := data{
		kindData: k, Group: g, Version: version, Kit: kit, Module: p.module, APIs: p.pkg("apis"),
		Registry: p.pkg("registry"),
		Server:   p.module + "/cmd/" + p.server(),
	}
	doc, err := os.ReadFile(p.path("apis", g.Package, version, "doc.go"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	if !bytes.Contains(doc, []byte("\n// +k8s:validation-gen=")) {
		d.Validation = p.pkg("validation", g.Package)
	}
	// A project can have its own header; a checkout of the kit uses the kit's. scripts/generate.sh
	// reads the same file.
	path := filepath.Join(p.dir, "scripts", "boilerplate.go.txt")
	if p.owned() {
		path = filepath.Join(p.dir, "boilerplate.go.txt")
	}
	header, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err == nil && len(bytes.TrimSpace(header)) > 0 {
		d.Header = string(bytes.TrimSpace(header)) + "\n\n"
	}
	return d, err
}

// renderGroup writes the files of a group with one version.
func (p *project) renderGroup(d data) error {
	pkg := d.Group.Package
	for path, name := range map[string]string{
		p.path("apis", pkg, "doc.go"):                 "group/doc.go",
		p.path("apis", pkg, "register.go"):            "group/register.go",
		p.path("apis", pkg, "install", "install.go"):  "group/install.go",
		p.path("apis", pkg, d.Version, "doc.go"):      "version/doc.go",
		p.path("apis", pkg, d.Version, "register.go"): "version/register.go",
	} {
		if err := render(path, name, d); err != nil {
			return err
		}
	}
	return nil
}
