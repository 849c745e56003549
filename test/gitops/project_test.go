// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// root is the root of the repository.
var root = filepath.Join("..", "..")

// project is a copy of the sample's manifests with the changes and files of docs/operate/gitops.md.
type project struct {
	*testing.T
	dir        string
	production string // the overlay, without images
}

// newProject returns a project with images of the tag v1.
func newProject(t *testing.T) *project {
	t.Helper()
	p := &project{T: t, dir: t.TempDir()}
	for _, folder := range []string{"manifests", filepath.Join("sample", "manifests")} {
		if err := os.CopyFS(filepath.Join(p.dir, folder), os.DirFS(filepath.Join(root, folder))); err != nil {
			t.Fatal(err)
		}
	}
	const component = "/components/certificates-certgen"
	before := p.read(filepath.Join(p.dir, "sample", "manifests", "production", "kustomization.yaml"))
	p.production = strings.Replace(before, component+"\n", component+"-gitops\n", 1)
	if p.production == before {
		t.Fatalf("the overlay production has no %s", component)
	}
	found := 0
	for _, block := range strings.Split(p.read(filepath.Join(root, "docs", "operate", "gitops.md")), "\n```yaml\n# ")[1:] {
		path, text, _ := strings.Cut(block, "\n")
		text, _, _ = strings.Cut(text, "```")
		p.write(path, text)
		found++
	}
	if found != 4 {
		t.Fatalf("docs/operate/gitops.md has %d files, want two overlays and two files of a chart", found)
	}
	p.setTag("v1")
	return p
}

// setTag sets the tag of both images.
func (p *project) setTag(tag string) {
	p.Helper()
	p.write("manifests/production/kustomization.yaml", p.production+fmt.Sprintf(
		"\nimages:\n- {name: extension-apiserver, newTag: %[1]s}\n- {name: certgen, newTag: %[1]s}\n", tag))
}

// render returns the objects of an overlay.
func (p *project) render(overlay string) []*unstructured.Unstructured {
	p.Helper()
	objects, err := utils.ReadObjects(strings.NewReader(p.text(overlay)))
	if err != nil {
		p.Fatal(err)
	}
	return objects
}

// text returns the output of kubectl kustomize.
func (p *project) text(overlay string) string {
	p.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(),
		filepath.Join(p.dir, "sample", "manifests", overlay))
	if err != nil {
		p.Fatalf("render %s: %v", overlay, err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		p.Fatalf("render %s: %v", overlay, err)
	}
	return string(text)
}

// chart renders the manifests into the chart and returns its directory.
func (p *project) chart() string {
	p.Helper()
	p.write("chart/server.yaml", p.text("gitops-server"))
	p.write("chart/api.yaml", p.text("gitops-api"))
	return filepath.Join(p.dir, "sample", "chart")
}

func (p *project) read(path string) string {
	p.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		p.Fatal(err)
	}
	return string(data)
}

// write writes a file of the project.
func (p *project) write(path, text string) {
	p.Helper()
	path = filepath.Join(p.dir, "sample", filepath.FromSlash(path))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.Fatal(err)
	}
}

// TestOverlays: the two overlays separate the objects of the project without loss, and the first
// one has neither an APIService nor a Job that waits for one.
func TestOverlays(t *testing.T) {
	p := newProject(t)
	server, api, all := p.render("gitops-server"), p.render("gitops-api"), p.render("production")
	if len(server)+len(api) != len(all) {
		t.Errorf("got %d and %d objects, want %d in total", len(server), len(api), len(all))
	}
	for _, obj := range server {
		if obj.GetKind() == "APIService" || obj.GetKind() == "Job" && waitsFor(argsOf(t, obj)) != nil {
			t.Errorf("gitops-server has %s %s", obj.GetKind(), obj.GetName())
		}
	}
	kinds, awaited := map[string]int{}, []string(nil)
	for _, obj := range api {
		kinds[obj.GetKind()]++
		if obj.GetKind() == "Job" {
			awaited = waitsFor(argsOf(t, obj))
		}
	}
	if kinds["Job"] != 1 || kinds["APIService"] != 3 || len(kinds) != 2 || len(awaited) != 3 {
		t.Errorf("gitops-api has %v, and its Job waits for %q; want 3 APIServices and one Job that waits for them",
			kinds, awaited)
	}
}

// argsOf returns the arguments of a Job's container.
func argsOf(t *testing.T, job *unstructured.Unstructured) []string {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(job.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("Job %s has %d containers, %v, want one", job.GetName(), len(containers), err)
	}
	container, ok := containers[0].(map[string]any)
	args, _, err := unstructured.NestedStringSlice(container, "args")
	if !ok || err != nil {
		t.Fatalf("Job %s: %v", job.GetName(), err)
	}
	return args
}

// waitsFor returns the APIServices for which certgen waits.
func waitsFor(args []string) []string {
	for _, arg := range args {
		if names, ok := strings.CutPrefix(arg, "--apiservice="); ok {
			return strings.Split(names, ",")
		}
	}
	return nil
}
