// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/apiserver"
	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample"
)

// serverOptions parses the arguments of a server's container.
func serverOptions(t testing.TB, args []string) *apiserver.Options {
	t.Helper()
	options, err := apiserver.NewOptions(sample.API())
	if err != nil {
		t.Fatal(err)
	}
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	for _, section := range options.Flags().FlagSets {
		fs.AddFlagSet(section)
	}
	if err := fs.Parse(args); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	if !slices.Equal(fs.Args(), []string{"serve"}) {
		t.Fatalf("%q: got the commands %q, want serve", args, fs.Args())
	}
	return options
}

// TestArguments runs the real binary with the arguments of every container, with its mounted files
// replaced by local ones. If all of them are valid, the only remaining error is that there is no
// cluster.
func TestArguments(t *testing.T) {
	binaries := map[string]string{"extension-apiserver": build(t, "cmd/extension-apiserver"),
		"certgen": build(t, "cmd/certgen")}
	mounts := t.TempDir()
	if _, err := certs.Init(t.Context(), certs.InitOptions{
		Dir: mounts, With: []string{}, Service: certs.Service{Name: envtest.ServiceName, Namespace: envtest.Namespace},
	}); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/certs/", "/etcd-certs/"} {
		if err := os.Symlink(filepath.Join(mounts, certs.ServingDir), filepath.Join(mounts, dir)); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			objects := parse(t, render(t, v))
			if policy, ok := auditPolicy(t, objects); ok {
				writeFile(t, filepath.Join(mounts, "audit", "policy.yaml"), policy)
			}
			for _, w := range workloads(t, objects) {
				c := w.pod.Spec.Containers[0]
				args := expand(t, w.GetNamespace(), c, objects)
				for i := range args {
					for _, m := range c.VolumeMounts {
						args[i] = strings.Replace(args[i], "="+m.MountPath+"/", "="+mounts+m.MountPath+"/", 1)
					}
				}
				code, out := runWithoutCluster(t, binaries[c.Name], args)
				want := map[string]string{
					"extension-apiserver": "extension-apiserver: --kubeconfig is required outside of a pod: ",
					"certgen":             "certgen: --kubeconfig: read kubeconfig: no cluster configured; ",
				}[c.Name]
				if code != 2 || !strings.HasPrefix(out, want) || strings.Count(out, "\n"+c.Name+": ") > 0 {
					t.Errorf("%s %s: got exit code %d and\n%s\nwant 2 and only %q", w.GetName(), args, code, out, want)
				}
			}
		})
	}
	// The same with invalid flags.
	if _, out := runWithoutCluster(t, binaries["extension-apiserver"],
		[]string{"serve", "--shutdown-delay-duration=15"}); !strings.Contains(out, "shutdown-delay-duration") {
		t.Errorf("a wrong flag is not found: %s", out)
	}
	if _, out := runWithoutCluster(t, binaries["certgen"], []string{"renew", "--wiat=10m"}); !strings.Contains(
		out, "--wiat") {
		t.Errorf("a wrong flag is not found: %s", out)
	}
}

// build builds a command of the kit and returns its file.
func build(t testing.TB, command string) string {
	t.Helper()
	file, err := envtest.Build(t.Context(), "example.com/extension-apiserver/"+command)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func mustAbs(t testing.TB, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

func runWithoutCluster(t *testing.T, binary string, args []string) (code int, output string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, string(out)
}

// expand replaces $(NAME) in arguments as kubelet does, for variables with values, from ConfigMaps
// and from fields of the pod.
func expand(t testing.TB, namespace string, c corev1.Container, objects []*unstructured.Unstructured) []string {
	t.Helper()
	args := slices.Clone(c.Args)
	for _, e := range c.Env {
		value := e.Value
		switch from := e.ValueFrom; {
		case from == nil:
		case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
			value = namespace
		case from.ConfigMapKeyRef != nil:
			for _, cm := range only[corev1.ConfigMap](t, objects, "ConfigMap") {
				if cm.Name == from.ConfigMapKeyRef.Name {
					value = cm.Data[from.ConfigMapKeyRef.Key]
				}
			}
		}
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], fmt.Sprintf("$(%s)", e.Name), value)
		}
	}
	for _, arg := range args {
		if strings.Contains(arg, "$(") {
			t.Errorf("%s has no value", arg)
		}
	}
	return args
}
