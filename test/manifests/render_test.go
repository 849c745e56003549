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
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"example.com/extension-apiserver/test/env"
)

// folder is that of the manifests.
var folder = filepath.Join("..", "..", "manifests")

// variant is something that a user can apply, or a component on the base alone.
type variant struct {
	name       string
	overlay    string   // a folder of overlays, or empty:
	components []string // on the base
}

// variants are all overlays, the base, every component on it, and on a StatefulSet those components that change the workload.
func variants(t testing.TB) []variant {
	t.Helper()
	out := []variant{{name: "base"}}
	for _, name := range folders(t, "overlays") {
		out = append(out, variant{name: name, overlay: name})
	}
	for _, name := range folders(t, "components") {
		out = append(out, variant{name: "base+" + name, components: []string{name}})
		if name == "audit" || strings.HasPrefix(name, "profile-") {
			out = append(out, variant{name: "base+embedded-storage+" + name, components: []string{"embedded-storage", name}})
		}
	}
	return out
}

// folders are the names of the folders in a folder of the manifests.
func folders(t testing.TB, in string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(folder, in))
	if err != nil || len(entries) == 0 {
		t.Fatalf("folders in %s: %d, %v", in, len(entries), err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// render returns what kubectl apply -k would apply.
func render(t testing.TB, v variant) string {
	t.Helper()
	dir := filepath.Join(folder, "overlays", v.overlay)
	if v.overlay == "" {
		dir = t.TempDir()
		kustomization := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s]\ncomponents:\n", relative(t, dir, "base"))
		for _, c := range v.components {
			kustomization += "- " + relative(t, dir, filepath.Join("components", c)) + "\n"
		}
		if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "bin", env.Minor, "kubectl"), "kustomize", dir)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("kubectl kustomize %s: %v\n%s", v.name, err, &stderr)
	}
	// A deprecated field is a warning.
	if stderr.Len() > 0 {
		t.Errorf("kubectl kustomize %s warns: %s", v.name, &stderr)
	}
	return stdout.String()
}

// relative is the only kind of path that kustomize takes.
func relative(t testing.TB, from, name string) string {
	t.Helper()
	to, err := filepath.Abs(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Rel(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// parse reads rendered manifests.
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

// as converts; an unknown field is an error.
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

// workload is what makes pods.
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
				pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + obj.GetName() + "-0"},
				}})
			}
		}
		out = append(out, workload{obj, *pod})
	}
	return out
}

// server is the workload of the API server.
func server(t testing.TB, objects []*unstructured.Unstructured) workload {
	t.Helper()
	for _, w := range workloads(t, objects) {
		if w.GetName() == env.ServiceName {
			return w
		}
	}
	t.Fatal("no workload extension-apiserver")
	return workload{}
}

// TestCertgenPods: Job and CronJob run the same pod.
func TestCertgenPods(t *testing.T) {
	objects := parse(t, render(t, variant{name: "certgen", components: []string{"certificates-certgen"}}))
	jobs, cronJobs := only[batchv1.Job](t, objects, "Job"), only[batchv1.CronJob](t, objects, "CronJob")
	if len(jobs) != 1 || len(cronJobs) != 1 || jobs[0].Spec.Template.String() != cronJobs[0].Spec.JobTemplate.Spec.Template.String() {
		t.Errorf("got %v and %v, want one of each with the same pod", jobs, cronJobs)
	}
}
