// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/pkg/envtest"
)

// folder has the manifests of the kit, sampleFolder those of a project that uses them.
var (
	folder       = filepath.Join("..", "..", "manifests")
	sampleFolder = filepath.Join("..", "..", "sample", "manifests")
)

// variant is an overlay that a user can apply, or components on the base alone.
type variant struct {
	name       string
	project    string   // the folder of a project; default: the sample
	overlay    string   // of the project; empty for components
	components []string // on the base
	names      string   // a kustomization of names instead of the project's; for components only
}

// overlays returns the overlays of a project.
func overlays(t testing.TB, project string) []string {
	t.Helper()
	return slices.DeleteFunc(folders(t, project), func(name string) bool { return name == "api" || name == "names" })
}

// variants returns all overlays, the base of the sample, every component on it, and on a
// StatefulSet those components that change the workload.
func variants(t testing.TB) []variant {
	t.Helper()
	out := []variant{{name: "base"}}
	for _, name := range overlays(t, sampleFolder) {
		out = append(out, variant{name: name, overlay: name})
	}
	for _, name := range folders(t, filepath.Join(folder, "components")) {
		out = append(out, variant{name: "base+" + name, components: []string{name}})
		if name == "audit" || strings.HasPrefix(name, "profile-") {
			out = append(out, variant{name: "base+embedded-storage+" + name,
				components: []string{"embedded-storage", name}})
		}
	}
	return out
}

// folders returns the names of the folders in a folder.
func folders(t testing.TB, in string) []string {
	t.Helper()
	entries, err := os.ReadDir(in)
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	if err != nil || len(names) == 0 {
		t.Fatalf("folders in %s: %d, %v", in, len(names), err)
	}
	return names
}

// render returns the objects that kubectl apply -k would apply.
func render(t testing.TB, v variant) string {
	t.Helper()
	if v.project == "" {
		v.project = sampleFolder
	}
	if v.overlay != "" {
		return kustomize(t, filepath.Join(v.project, v.overlay))
	}
	dir := t.TempDir()
	components := []string{relative(t, dir, filepath.Join(v.project, "names"))}
	if v.names != "" {
		components = []string{"names"}
		writeFile(t, filepath.Join(dir, "names", "kustomization.yaml"), v.names)
	}
	for i, c := range v.components {
		components = slices.Insert(components, i, relative(t, dir, filepath.Join(folder, "components", c)))
	}
	components = append(components, relative(t, dir, filepath.Join(folder, "names")))
	writeFile(t, filepath.Join(dir, "kustomization.yaml"), fmt.Sprintf("resources: [%s]\ncomponents: [%s]\n",
		relative(t, dir, filepath.Join(v.project, "api")), strings.Join(components, ", ")))
	return kustomize(t, dir)
}

// kustomize renders a folder.
func kustomize(t testing.TB, dir string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "bin", envtest.Minor(), "kubectl"),
		"kustomize", dir)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("kubectl kustomize %s: %v\n%s", dir, err, &stderr)
	}
	// A deprecated field causes a warning.
	if stderr.Len() > 0 {
		t.Errorf("kubectl kustomize %s warns: %s", dir, &stderr)
	}
	return stdout.String()
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// relative returns a relative path, the only kind that kustomize accepts.
func relative(t testing.TB, from, to string) string {
	t.Helper()
	path, err := filepath.Rel(from, mustAbs(t, to))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// parse parses rendered manifests.
func parse(t testing.TB, rendered string) []*unstructured.Unstructured {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(rendered), 4096)
	var out []*unstructured.Unstructured
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, obj)
	}
}

// as converts an object; an unknown field is an error.
func as[T any](t testing.TB, obj *unstructured.Unstructured) *T {
	t.Helper()
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(obj.Object, out, true); err != nil {
		t.Fatalf("%s %s: %v", obj.GetKind(), obj.GetName(), err)
	}
	return out
}

// only returns the objects of a kind.
func only[T any](t testing.TB, objects []*unstructured.Unstructured, kind string) []*T {
	t.Helper()
	var out []*T
	for _, obj := range objects {
		if obj.GetKind() == kind {
			out = append(out, as[T](t, obj))
		}
	}
	return out
}

// workload is an object that creates pods.
type workload struct {
	*unstructured.Unstructured
	pod corev1.PodTemplateSpec
}

func workloads(t testing.TB, objects []*unstructured.Unstructured) []workload {
	t.Helper()
	var out []workload
	for _, obj := range objects {
		path := []string{"spec", "template"}
		switch obj.GetKind() {
		case "Deployment", "StatefulSet", "DaemonSet", "Job":
		case "CronJob":
			path = []string{"spec", "jobTemplate", "spec", "template"}
		default:
			continue
		}
		template, found, err := unstructured.NestedMap(obj.Object, path...)
		if err != nil || !found {
			t.Fatalf("%s %s: no pod template: %v", obj.GetKind(), obj.GetName(), err)
		}
		pod := as[corev1.PodTemplateSpec](t, &unstructured.Unstructured{Object: template})
		if obj.GetKind() == "StatefulSet" {
			// As the controller does.
			for _, claim := range as[appsv1.StatefulSet](t, obj).Spec.VolumeClaimTemplates {
				pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name,
					VolumeSource: corev1.VolumeSource{
						PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" +
							obj.GetName() + "-0"},
					}})
			}
		}
		out = append(out, workload{obj, *pod})
	}
	return out
}

// service returns the Service of the API server, which gives all names.
func service(t testing.TB, objects []*unstructured.Unstructured) *corev1.Service {
	t.Helper()
	all := only[corev1.Service](t, objects, "Service")
	if len(all) != 1 {
		t.Fatalf("%d Services, want 1", len(all))
	}
	return all[0]
}

// server returns the workload of the API server.
func server(t testing.TB, objects []*unstructured.Unstructured) workload {
	t.Helper()
	name := service(t, objects).Name
	for _, w := range workloads(t, objects) {
		if w.GetName() == name {
			return w
		}
	}
	t.Fatalf("no workload %s", name)
	return workload{}
}

// registered returns the APIServices.
func registered(t testing.TB, objects []*unstructured.Unstructured) []*apiregistrationv1.APIService {
	t.Helper()
	out := only[apiregistrationv1.APIService](t, objects, "APIService")
	// kustomize sorts them by their names.
	slices.SortFunc(out, func(a, b *apiregistrationv1.APIService) int {
		return int(b.Spec.VersionPriority - a.Spec.VersionPriority)
	})
	return out
}

// TestCertgenPods checks that Job and CronJob run the same pod.
func TestCertgenPods(t *testing.T) {
	objects := parse(t, render(t, variant{name: "certgen", components: []string{"certificates-certgen"}}))
	jobs, cronJobs := only[batchv1.Job](t, objects, "Job"), only[batchv1.CronJob](t, objects, "CronJob")
	if len(jobs) != 1 || len(cronJobs) != 1 ||
		jobs[0].Spec.Template.String() != cronJobs[0].Spec.JobTemplate.Spec.Template.String() {
		t.Errorf("got %v and %v, want one of each with the same pod", jobs, cronJobs)
	}
}
