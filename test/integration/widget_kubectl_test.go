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

	"example.com/extension-apiserver/test/env"
)

// TestWidgetKubectl does with the real kubectl what a person does.
func TestWidgetKubectl(t *testing.T) {
	namespace := newNamespace(t, shared)
	sample := "sample/objects/widget.yaml"
	for _, step := range []struct {
		name string
		run  env.Kubectl
		args []string
		want string // a regular expression
	}{
		{"create", env.Kubectl{}, []string{"create", "-f", "-"}, `widget.workshop.example.com/w created`},
		{"get", env.Kubectl{}, []string{"get", "widgets"}, `(?m)^NAME +MODEL +GRADE +DESIRED +READY +AGE\nw +pendulum +Standard +2 +0 +\d+s$`},
		{"get wide", env.Kubectl{}, []string{"get", "wg", "w", "-o", "wide"}, `PARTS\nw .* 2\n`},
		{"get by category", env.Kubectl{}, []string{"get", "workshop"}, `pendulum`},
		{"get yaml has defaults", env.Kubectl{}, []string{"get", "widget", "w", "-o", "yaml"}, `(?s)quantity: 1\n.*grade: Standard|grade: Standard\n.*quantity: 1\n`},
		{"explain", env.Kubectl{}, []string{"explain", "widget.spec.parts.quantity"}, `quantity is how many of the part one widget\s+needs`},
		{"apply", env.Kubectl{}, []string{"apply", "-f", "-"}, `widget.workshop.example.com/w configured`},
		{"apply server-side", env.Kubectl{}, []string{"apply", "--server-side", "--force-conflicts", "-f", "-"}, `serverside-applied`},
		{"edit", env.Kubectl{Env: []string{"KUBE_EDITOR=sed -i s/Standard/Premium/"}}, []string{"edit", "widget", "w"}, `widget.workshop.example.com/w edited`},
		{"edited", env.Kubectl{}, []string{"get", "widget", "w", "-o", "jsonpath={.spec.grade}"}, `^Premium$`},
		{"diff finds nothing after apply", env.Kubectl{}, []string{"diff", "--server-side", "--force-conflicts", "-f", "-"}, `^$`},
		{"label", env.Kubectl{}, []string{"label", "widget", "w", "colour=red"}, `labeled`},
		{"describe", env.Kubectl{}, []string{"describe", "widget", "w"}, `(?s)Spec:.*Model: +pendulum`},
		{"delete", env.Kubectl{}, []string{"delete", "widget", "w"}, `widget.workshop.example.com "w" deleted`},
	} {
		step.run.Stdin = named(t, sample, "w")
		stdout, stderr, err := step.run.Run(t.Context(), shared, append([]string{"--namespace=" + namespace}, step.args...)...)
		if err != nil || !regexp.MustCompile(step.want).MatchString(stdout) {
			t.Errorf("%s: kubectl %s: %v\n%s%s\nwant %s", step.name, strings.Join(step.args, " "), err, stdout, stderr, step.want)
		}
	}
}

// TestWidgetKubectlWatch: kubectl get -w prints a new line for a change.
func TestWidgetKubectlWatch(t *testing.T) {
	namespace := newNamespace(t, shared)
	kubectl := func(k env.Kubectl, args ...string) {
		t.Helper()
		if stdout, stderr, err := k.Run(t.Context(), shared, append([]string{"--namespace=" + namespace}, args...)...); err != nil {
			t.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, stdout, stderr)
		}
	}
	kubectl(env.Kubectl{Stdin: named(t, "sample/objects/widget.yaml", "w")}, "create", "-f", "-")

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	reader, writer := io.Pipe()
	go func() {
		_, stderr, err := env.Kubectl{Stdout: writer}.Run(ctx, shared, "--namespace="+namespace, "get", "widgets", "-w", "--no-headers")
		writer.CloseWithError(errors.Join(err, errors.New(stderr)))
	}()
	lines := bufio.NewScanner(reader)
	if !lines.Scan() || !regexp.MustCompile(`^w +pendulum +Standard +2 +0 `).MatchString(lines.Text()) {
		t.Fatalf("first line %q (%v), want the widget with 0 ready", lines.Text(), lines.Err())
	}
	kubectl(env.Kubectl{}, "patch", "widget", "w", "--subresource=status", "--type=merge", `--patch={"status":{"replicas":2,"readyReplicas":2}}`)
	if !lines.Scan() || !regexp.MustCompile(`^w +pendulum +Standard +2 +2 `).MatchString(lines.Text()) {
		t.Errorf("next line %q (%v), want the widget with 2 ready", lines.Text(), lines.Err())
	}
}
