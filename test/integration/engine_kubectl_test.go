// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestEngineKubectl does with the real kubectl what a person does.
func TestEngineKubectl(t *testing.T) {
	namespace := newNamespace(t, shared)
	sample := "test/fixture/objects/engine.yaml"
	for _, step := range []struct {
		name string
		run  envtest.Kubectl
		args []string
		want string // a regular expression
	}{
		{"create", envtest.Kubectl{}, []string{"create", "-f", "-"}, `engine.fixture.example.com/w created`},
		{"get", envtest.Kubectl{}, []string{"get", "engines"}, `(?m)^NAME +MODEL +GRADE +DESIRED +READY +AGE\nw +pendulum +Standard +2 +0 +\d+s$`},
		{"get wide", envtest.Kubectl{}, []string{"get", "eng", "w", "-o", "wide"}, `PARTS\nw .* 2\n`},
		{"get by category", envtest.Kubectl{}, []string{"get", "fixture"}, `pendulum`},
		{"get yaml has defaults", envtest.Kubectl{}, []string{"get", "engine", "w", "-o", "yaml"}, `(?s)quantity: 1\n.*grade: Standard|grade: Standard\n.*quantity: 1\n`},
		{"explain", envtest.Kubectl{}, []string{"explain", "engine.spec.parts.quantity"}, `quantity is how many of the part one engine\s+needs`},
		{"apply", envtest.Kubectl{}, []string{"apply", "-f", "-"}, `engine.fixture.example.com/w configured`},
		{"apply server-side", envtest.Kubectl{}, []string{"apply", "--server-side", "--force-conflicts", "-f", "-"}, `serverside-applied`},
		{"edit", envtest.Kubectl{Env: []string{"KUBE_EDITOR=sed -i s/Standard/Premium/"}}, []string{"edit", "engine", "w"}, `engine.fixture.example.com/w edited`},
		{"edited", envtest.Kubectl{}, []string{"get", "engine", "w", "-o", "jsonpath={.spec.grade}"}, `^Premium$`},
		{"diff finds nothing after apply", envtest.Kubectl{}, []string{"diff", "--server-side", "--force-conflicts", "-f", "-"}, `^$`},
		{"label", envtest.Kubectl{}, []string{"label", "engine", "w", "colour=red"}, `labeled`},
		{"describe", envtest.Kubectl{}, []string{"describe", "engine", "w"}, `(?s)Spec:.*Model: +pendulum`},
		{"delete", envtest.Kubectl{}, []string{"delete", "engine", "w"}, `engine.fixture.example.com "w" deleted`},
	} {
		step.run.Stdin = named(t, sample, "w")
		stdout, stderr, err := step.run.Run(t.Context(), shared, append([]string{"--namespace=" + namespace}, step.args...)...)
		if err != nil || !regexp.MustCompile(step.want).MatchString(stdout) {
			t.Errorf("%s: kubectl %s: %v\n%s%s\nwant %s", step.name, strings.Join(step.args, " "), err, stdout, stderr, step.want)
		}
	}
}

// TestEngineKubectlWatch: kubectl get -w prints a new line for a change.
func TestEngineKubectlWatch(t *testing.T) {
	namespace := newNamespace(t, shared)
	kubectl := func(k envtest.Kubectl, args ...string) {
		t.Helper()
		if stdout, stderr, err := k.Run(t.Context(), shared, append([]string{"--namespace=" + namespace}, args...)...); err != nil {
			t.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, stdout, stderr)
		}
	}
	kubectl(envtest.Kubectl{Stdin: named(t, "test/fixture/objects/engine.yaml", "w")}, "create", "-f", "-")

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	reader, writer := io.Pipe()
	go func() {
		_, stderr, err := envtest.Kubectl{Stdout: writer}.Run(ctx, shared, "--namespace="+namespace, "get", "engines", "-w", "--no-headers")
		writer.CloseWithError(errors.Join(err, errors.New(stderr)))
	}()
	lines := bufio.NewScanner(reader)
	if !lines.Scan() || !regexp.MustCompile(`^w +pendulum +Standard +2 +0 `).MatchString(lines.Text()) {
		t.Fatalf("first line %q (%v), want the engine with 0 ready", lines.Text(), lines.Err())
	}
	kubectl(envtest.Kubectl{}, "patch", "engine", "w", "--subresource=status", "--type=merge", `--patch={"status":{"replicas":2,"readyReplicas":2}}`)
	if !lines.Scan() || !regexp.MustCompile(`^w +pendulum +Standard +2 +2 `).MatchString(lines.Text()) {
		t.Errorf("next line %q (%v), want the engine with 2 ready", lines.Text(), lines.Err())
	}
}
