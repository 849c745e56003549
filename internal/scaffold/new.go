// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// newOptions are the options of the command new.
type newOptions struct {
	dir, module, group, name string
	version                  string // the first
	kit                      string // directory of the kit
	kitVersion               string // empty: go.mod refers to the directory
	docsURL                  string // of a copy of the kit's documentation; empty: the kit's
	kind                     Kind
}

const firstVersion = "v1"

// validate returns all errors of the options.
func (o *newOptions) validate() []error {
	problems := slices.Concat(checkTools(), validateModule(o.module), validateGroup(o.group),
		validateVersion(o.version), o.kind.validate())
	if o.dir == "" {
		problems = append(problems, errors.New("--dir is required"))
	} else if entries, err := os.ReadDir(o.dir); err == nil && len(entries) > 0 {
		problems = append(problems, fmt.Errorf("directory %s: not empty", o.dir))
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		problems = append(problems, err)
	}
	if o.name == "" {
		o.name = groupOf(o.group).Package + "-apiserver"
	}
	prefix, ok := strings.CutSuffix(o.name, "-apiserver")
	if !ok || len(validateGroup(prefix+".example.com")) > 0 {
		problems = append(problems, fmt.Errorf("server name %q: expected a name such as backup-apiserver",
			o.name))
	}
	if u, err := url.Parse(o.docsURL); o.docsURL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" ||
		u.Host == "") {
		problems = append(problems, fmt.Errorf("--docs-url is %q, expected a URL such as https://docs.example.org/kit/",
			o.docsURL))
	}
	if o.module == kit {
		problems = append(problems, fmt.Errorf("module %q: is the kit's", o.module))
	}
	return problems
}

// create creates the project in a sibling directory, and renames it when it is complete.
func (w work) create(o newOptions) error {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // others may read it
		return err
	}
	stage, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-scaffold-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(stage) }()
	if err := os.Chmod(stage, 0o755); err != nil {
		return err
	}
	p := &project{dir: stage, module: o.module}
	d, err := o.data(p)
	if err != nil {
		return err
	}
	if err := w.step("Writing files", func() error { return w.writeProject(p, o, d) }); err != nil {
		return err
	}
	if err := w.generate(p); err != nil {
		return err
	}
	_ = os.RemoveAll(filepath.Join(stage, "bin"))
	if err := w.run(stage, nil, "git", "init", "--quiet"); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(stage, dir); err != nil {
		return err
	}
	w.printNextSteps(o, dir)
	return nil
}

func (o newOptions) data(p *project) (data, error) {
	d, err := p.data(groupOf(o.group), o.version, o.kind)
	prefix := strings.TrimSuffix(o.name, "apiserver")
	d.Name, d.Server = o.name, o.module+"/cmd/"+o.name
	d.RootPackage = strings.ReplaceAll(strings.TrimSuffix(prefix, "-"), "-", "")
	d.Namespace, d.Prefix = prefix+"system", prefix
	d.Replace = o.kitVersion == ""
	return d, err
}

func (w work) writeProject(p *project, o newOptions, d data) error {
	kitMod, err := readMod(filepath.Join(o.kit, "go.mod"))
	if err != nil {
		return err
	}
	d.Go = kitMod.Go.Version
	for path, name := range map[string]string{
		".gitignore":                         "project/gitignore",
		"Makefile":                           "project/Makefile",
		"README.md":                          "project/README.md",
		"ci.sh":                              "project/ci.sh",
		"api.go":                             "project/api.go",
		"api_test.go":                        "project/api_test.go",
		"cmd/" + o.name + "/main.go":         "project/main.go",
		"manifests/api/kustomization.yaml":   "project/manifests-api.yaml",
		"manifests/names/kustomization.yaml": "project/manifests-names.yaml",
		"manifests/kind/kustomization.yaml":  "project/manifests-kind.yaml",
		"manifests/production/kustomization.yaml": "project/manifests-production.yaml",
	} {
		if err := render(p.path(path), name, d); err != nil {
			return err
		}
	}
	if err := errors.Join(p.renderGroup(d), p.renderKind(d), p.listKind(d.Group, d.kindData)); err != nil {
		return err
	}
	if err := copyKit(o.kit, p.dir, o.docsURL); err != nil {
		return err
	}
	return writeMods(p, o, kitMod)
}

// writeMods writes the go.mod of the project and of its types. Both begin with the versions of the
// kit, with which it is tested. go mod tidy removes the others.
func writeMods(p *project, o newOptions, kitMod *modfile.File) error {
	server, types := &modfile.File{}, &modfile.File{}
	for _, m := range []struct {
		file *modfile.File
		path string
	}{{server, o.module}, {types, p.pkg("apis")}} {
		if err := errors.Join(m.file.AddModuleStmt(m.path), m.file.AddGoStmt(kitMod.Go.Version)); err != nil {
			return err
		}
		for _, r := range kitMod.Require {
			m.file.AddNewRequire(r.Mod.Path, r.Mod.Version, r.Indirect)
		}
	}
	version := o.kitVersion
	if version == "" {
		version = "v0.0.0"
		relative, err := filepath.Rel(p.dir, o.kit)
		if err != nil {
			return err
		}
		if err := server.AddReplace(kit, "", relative, ""); err != nil {
			return err
		}
	}
	server.AddNewRequire(kit, version, false)
	server.AddNewRequire(p.pkg("apis"), "v0.0.0", false)
	server.AddNewRequire("sigs.k8s.io/kind", kindVersion, false)
	if err := server.AddReplace(p.pkg("apis"), "", "./apis", ""); err != nil {
		return err
	}
	for _, tool := range []string{
		kit + "/cmd/certgen", kit + "/cmd/local-up", kit + "/cmd/scaffold", kit + "/cmd/setup-envtest", kit +
			"/scripts/image", kit + "/scripts/image/sbom",
		"golang.org/x/tools/cmd/goimports", "k8s.io/code-generator/cmd/go-to-protobuf",
		"k8s.io/code-generator/cmd/go-to-protobuf/protoc-gen-gogo",
		"k8s.io/code-generator/cmd/validation-gen", "sigs.k8s.io/kind",
	} {
		if err := server.AddTool(tool); err != nil {
			return err
		}
	}
	sums, err := os.ReadFile(filepath.Join(o.kit, "go.sum"))
	if err != nil {
		return err
	}
	for dir, file := range map[string]*modfile.File{p.dir: server, p.path("apis"): types} {
		file.Cleanup()
		text, err := file.Format()
		if err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "go.mod"), text, 0o644), os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644)); err != nil { //nolint:gosec // as Git writes them
			return err
		}
	}
	return nil
}

// kindVersion is the version of kind in scripts/tools/go.mod.
const kindVersion = "v0.33.0"

func readMod(path string) (*modfile.File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(path, text, nil)
}

// kitFiles are the files of the kit that a project has in kit/.
var kitFiles = []string{
	"manifests", "scripts/build.sh", "scripts/deploy.sh", "scripts/generate.sh", "scripts/image.sh", "scripts/kind.sh",
	"scripts/kind.yaml",
	"scripts/needs.sh", "scripts/overlay.sh", "scripts/project.sh", "scripts/undeploy.sh",
}

// sumsFile has the checksums of the files in kit/, in the format of sha256sum.
const sumsFile = "SHA256SUMS"

const (
	// docsURL is the address of the kit's documentation in links of the manifests.
	docsURL = "https://" + kit + "/blob/main/"
	// docsURLFile is the file in kit/ with the address that replaces it, if any.
	docsURLFile = "docs-url"
)

// copyKit writes the files of the kit and their checksums into a project. Unless docs is empty, it
// replaces the address of the kit's documentation, and records the new one for upgrades.
func copyKit(from, dir, docs string) error {
	if docs != "" {
		docs = strings.TrimSuffix(docs, "/") + "/"
	}
	var sums strings.Builder
	tree := os.DirFS(from)
	for _, top := range kitFiles {
		err := fs.WalkDir(tree, top, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(name, ".go") {
				return err
			}
			data, err := fs.ReadFile(tree, name)
			if err != nil {
				return err
			}
			if docs != "" {
				data = bytes.ReplaceAll(data, []byte(docsURL), []byte(docs))
			}
			to := filepath.Join(dir, "kit", name)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // as Git makes it
				return err
			}
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), name)
			return os.WriteFile(to, data, 0o644) //nolint:gosec // as Git writes it
		})
		if err != nil {
			return fmt.Errorf("copy the files of the kit: %w", err)
		}
	}
	if docs != "" {
		if err := os.WriteFile(filepath.Join(dir, "kit", docsURLFile), []byte(docs+"\n"), 0o644); err != nil { //nolint:gosec // as Git writes it
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "kit", sumsFile), []byte(sums.String()), 0o644) //nolint:gosec // as Git writes it
}

// printNextSteps prints what was created and the next commands.
func (w work) printNextSteps(o newOptions, dir string) {
	byHand, lines := 0, 0
	if names, err := walk(dir); err == nil {
		for _, name := range names {
			base := filepath.Base(name)
			if strings.HasPrefix(name, "kit/") || strings.Contains(name, "apis/client/") ||
				strings.HasPrefix(base, "zz_generated") ||
				strings.HasPrefix(base, "generated.") || base == "go.mod" || base == "go.sum" ||
				base == "apiservices.yaml" {
				continue
			}
			if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				byHand++
				lines += strings.Count(string(data), "\n")
			}
		}
	}
	fmt.Fprintf(w.out, "Created project %s in %s: %d files of your own with %d lines, files of the kit in kit/, "+
		"and generated code.\n", o.module, dir, byHand, lines)
	if o.kitVersion == "" {
		fmt.Fprintf(w.out, "Its go.mod refers to the kit in %s by replace, because this version of the kit is not "+
			"published.\n", o.kit)
	}
	fmt.Fprintf(w.out, "\nNext:\n  cd %s\n  make run\n", shellWord(o.dir))
}

// shellWord returns a path as one word of a shell.
func shellWord(path string) string {
	if strings.HasPrefix(path, "-") {
		path = "./" + path
	}
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
