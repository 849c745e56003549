// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/pkg/envtest"
)

// root is the folder of the module.
var root = filepath.Join("..", "..")

// shipped is one combination of the components in konnectivity/.
type shipped struct {
	sidecar   bool
	mode      string // the name of a file in konnectivity/egress
	mtls      bool
	daemonSet bool
}

func (c shipped) String() string {
	return fmt.Sprintf("sidecar=%t,%s,mtls=%t,daemonset=%t", c.sidecar, c.mode, c.mtls, c.daemonSet)
}

// combinations returns all valid combinations. A sidecar shares a volume with kube-apiserver and
// needs no TCP.
func combinations() []shipped {
	var out []shipped
	both := []bool{false, true}
	for _, sidecar := range both {
		for _, mode := range []string{"grpc-uds", "http-connect-uds", "http-connect-tcp"} {
			for _, mtls := range both {
				for _, daemonSet := range both {
					if c := (shipped{sidecar, mode, mtls, daemonSet}); !sidecar || mode != "http-connect-tcp" {
						out = append(out, c)
					}
				}
			}
		}
	}
	return out
}

// files returns the rendered manifests by file name.
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
			component("agents", "daemonset", c.daemonSet), component("agents", "mtls", c.mtls),
			[]string{"konnectivity/agents/components/network-policy"})),
		"rbac.yaml": kustomize(t, "", []string{"konnectivity/server/rbac"}, nil),
	}
	folder := "server/static-pod"
	if c.sidecar {
		folder = "server/sidecar"
	}
	components := slices.Concat(component(folder, "mtls", c.mtls), component(folder, c.mode, c.mode != "grpc-uds"))
	const testdata = "internal/konnectivity/testdata/"
	if c.sidecar {
		text := kustomize(t, "clusters-demo", []string{testdata + "kube-apiserver-deployment.yaml"},
			slices.Concat([]string{"konnectivity/server/sidecar"}, components, []string{"konnectivity/images"}))
		text = strings.Replace(text, "egress/grpc-uds.yaml\n", "egress/"+c.mode+".yaml\n", 1)
		out["control-plane.yaml"] = text
		return out
	}
	out["server.yaml"] = kustomize(t, "", []string{"konnectivity/server/static-pod"}, components)
	text := kustomize(t, "", []string{testdata + "kube-apiserver-pod.yaml"},
		[]string{"konnectivity/server/kube-apiserver"})
	out["kube-apiserver.yaml"] = strings.Replace(text, "egress/grpc-uds.yaml\n", "egress/"+c.mode+".yaml\n", 1)
	out[c.mode+".yaml"] = readFile(t, filepath.Join(root, "konnectivity", "egress", c.mode+".yaml"))
	return out
}

var (
	renderedMu sync.Mutex
	rendered   = map[string]string{}
)

// kustomize renders resources and components, once for all tests.
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
	write(t, dir, "kustomization.yaml", fmt.Sprintf("namespace: %q\nresources: %s\ncomponents: %s\n", namespace,
		relative(resources), relative(components)))
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "bin", envtest.DefaultMinor, "kubectl"),
		"kustomize", dir)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A warning means a deprecated field.
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Fatalf("kubectl kustomize %s: %v\n%s", key, err, &stderr)
	}
	rendered[key] = stdout.String()
	return stdout.String()
}

func check(t testing.TB, dir string) *verify.Report {
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
