// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"
)

// root is the folder of the module.
var root = filepath.Join("..", "..")

// shipped is one way to combine what konnectivity/ has.
type shipped struct {
	sidecar   bool
	mode      string // the name of a file in konnectivity/egress
	mtls      bool
	leases    bool
	daemonSet bool
}

func (c shipped) String() string {
	return fmt.Sprintf("sidecar=%t,%s,mtls=%t,leases=%t,daemonset=%t", c.sidecar, c.mode, c.mtls, c.leases, c.daemonSet)
}

// combinations are all that there are. A sidecar shares a volume with kube-apiserver and needs no TCP.
func combinations() []shipped {
	var out []shipped
	both := []bool{false, true}
	for _, sidecar := range both {
		for _, mode := range []string{"grpc-uds", "http-connect-uds", "http-connect-tcp"} {
			for _, mtls := range both {
				for _, leases := range both {
					for _, daemonSet := range both {
						if c := (shipped{sidecar, mode, mtls, leases, daemonSet}); !sidecar || mode != "http-connect-tcp" {
							out = append(out, c)
						}
					}
				}
			}
		}
	}
	return out
}

// files returns the rendered manifests by the names of their files.
func (c shipped) files(t testing.TB) map[string]string {
	t.Helper()
	component := func(folder, name string, is bool) []string {
		if !is {
			return nil
		}
		return []string{"konnectivity/" + folder + "/components/" + name}
	}
	out := map[string]string{
		"agents.yaml": kustomize(t, "", []string{"konnectivity/agents/base"}, slices.Concat(
			component("agents", "daemonset", c.daemonSet), component("agents", "mtls", c.mtls), component("agents", "leases", c.leases),
			[]string{"konnectivity/agents/components/network-policy"})),
		"backend.yaml": kustomize(t, "", []string{"test/fixture/manifests/production"}, nil),
	}
	// The server asks for nothing where agents have certificates and there are no leases.
	if !c.mtls {
		out["rbac.yaml"] = kustomize(t, "", []string{"konnectivity/server/rbac"}, component("server/rbac", "leases", c.leases))
	} else if c.leases {
		out["rbac.yaml"] = kustomize(t, "", nil, component("server/rbac", "leases", true))
	}
	folder := "server/static-pod"
	if c.sidecar {
		folder = "server/sidecar"
	}
	components := slices.Concat(
		component(folder, "mtls", c.mtls), component(folder, c.mode, c.mode != "grpc-uds"), component(folder, "leases", c.leases),
		component(folder, "kubeconfig", c.mtls && c.leases))
	const testdata = "internal/konnectivity/testdata/"
	if c.sidecar {
		text := kustomize(t, "clusters-demo", []string{testdata + "kube-apiserver-deployment.yaml"},
			slices.Concat([]string{"konnectivity/server/sidecar"}, components, []string{"konnectivity/images"}))
		text = strings.Replace(text, "egress/grpc-uds.yaml\n", "egress/"+c.mode+".yaml\n", 1)
		if c.leases {
			text = strings.Replace(text, "replicas: 1\n", "replicas: 2\n", 1)
		}
		out["control-plane.yaml"] = text
		return out
	}
	out["server.yaml"] = kustomize(t, "", []string{"konnectivity/server/static-pod"}, components)
	text := kustomize(t, "", []string{testdata + "kube-apiserver-pod.yaml"}, []string{"konnectivity/server/kube-apiserver"})
	out["kube-apiserver.yaml"] = strings.Replace(text, "egress/grpc-uds.yaml\n", "egress/"+c.mode+".yaml\n", 1)
	out[c.mode+".yaml"] = readFile(t, filepath.Join(root, "konnectivity", "egress", c.mode+".yaml"))
	return out
}

var (
	renderedMu sync.Mutex
	rendered   = map[string]string{}
)

// kustomize renders resources and components, each once for all tests.
func kustomize(t testing.TB, namespace string, resources, components []string) string {
	t.Helper()
	renderedMu.Lock()
	defer renderedMu.Unlock()
	key := fmt.Sprint(namespace, resources, components)
	if text, ok := rendered[key]; ok {
		return text
	}
	dir := t.TempDir()
	relative := func(paths []string) string {
		var out []string
		for _, path := range paths {
			// A file must be below the kustomization.
			if strings.HasSuffix(path, ".yaml") {
				write(t, dir, filepath.Base(path), readFile(t, filepath.Join(root, path)))
				out = append(out, filepath.Base(path))
				continue
			}
			abs, err := filepath.Abs(filepath.Join(root, path))
			if err != nil {
				t.Fatal(err)
			}
			rel, err := filepath.Rel(dir, abs)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, rel)
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	write(t, dir, "kustomization.yaml", fmt.Sprintf("namespace: %q\nresources: %s\ncomponents: %s\n", namespace, relative(resources), relative(components)))
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "bin", envtest.DefaultMinor, "kubectl"), "kustomize", dir)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A deprecated field is a warning.
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Fatalf("kubectl kustomize %s: %v\n%s", key, err, &stderr)
	}
	rendered[key] = stdout.String()
	return stdout.String()
}

var hashFound = regexp.MustCompile(`is "", the certificates have ([0-9a-f]{16})$`)

// annotated gives the pods the annotations that K16 asks for.
func annotated(t testing.TB, files map[string]string, bare *Report) map[string]string {
	t.Helper()
	out := maps.Clone(files)
	for _, f := range bare.Findings {
		if f.ID != "K16" {
			continue
		}
		hash := hashFound.FindStringSubmatch(f.Evidence)
		app := "konnectivity-agent"
		if !strings.Contains(f.Object, "agents.yaml") {
			app = "konnectivity-server"
		}
		if hash == nil {
			t.Fatalf("no hash in %q", f.Evidence)
		}
		for name, text := range out {
			if strings.Contains(f.Object, string(filepath.Separator)+name+" ") {
				out[name] = annotate(t, text, app, hash[1])
			}
		}
	}
	return out
}

// annotate adds the annotation beside the label of the pods, which the rendered manifests have in this form.
func annotate(t testing.TB, text, app, hash string) string {
	t.Helper()
	label := regexp.MustCompile(`(?m)^( *)labels:\n(( +)[-a-z0-9]+: .*\n)*( +)k8s-app: ` + app + `\n`)
	all := label.FindAllStringIndex(text, -1)
	if len(all) == 0 {
		t.Fatalf("no label k8s-app: %s in\n%s", app, text)
	}
	for _, at := range slices.Backward(all) {
		match := text[at[0]:at[1]]
		indent := match[:strings.Index(match, "labels")]
		text = text[:at[0]] + indent + "annotations: {" + HashAnnotation + ": \"" + hash + "\"}\n" + text[at[0]:]
	}
	return text
}

func check(t testing.TB, dir string) *Report {
	t.Helper()
	report, err := Verify(dir, Options{Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
