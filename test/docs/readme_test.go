// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
)

// TestReadme follows the quick start of the README.
func TestReadme(t *testing.T) {
	newReader(t).follow(t, "../README.md", "Quick start")
}

// sampleCommands create the objects of the sample, or find them.
const sampleCommands = `export KUBECONFIG=$PWD/.run/kubeconfig PATH=$PWD/bin/1.37:$PATH
kubectl apply -f sample/objects/widget.yaml -f sample/objects/gadget.yaml
kubectl get widgets,gadgets --all-namespaces
kubectl explain widget.spec
kubectl create -f sample/objects/identityreview.yaml -o yaml
`

// TestRun checks that `make run` serves the sample and finds its objects again after Ctrl-C, and
// that make run-clean deletes them.
func TestRun(t *testing.T) {
	dir := scripttest.CopyTree(t, filepath.Join("..", ".."))
	first := scripttest.MakeRun(t, dir, "make run")
	if printed := first.String(); !regexp.MustCompile(
		`(?s)First run: .*First run with \d+ CPUs: .*Starting a control plane .*Ready after \d+[.]\d+s`).MatchString(
		printed) {
		t.Errorf("make run printed, want its steps and an estimate first:\n%s", printed)
	}
	out := scripttest.Shell(t, dir, sampleCommands)
	for _, want := range []string{
		`widget.workshop.example.com/sample created`, `gadget.workshop.example.com/sample created`,
		`default +widget.workshop.example.com/sample +pendulum +Standard +2 +0`,
		`model	<string> -required-`, `authenticator: RequestHeader`, `username: admin`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("the commands printed no %q:\n%s", want, out)
		}
	}
	first.Interrupt(t)

	second := scripttest.MakeRun(t, dir, "make run")
	if out := scripttest.Shell(t, dir, sampleCommands); !strings.Contains(out,
		"widget.workshop.example.com/sample unchanged") {
		t.Errorf("the second make run did not find the widget of the first:\n%s", out)
	}
	second.Interrupt(t)
	scripttest.Shell(t, dir, "make run-clean")
	if _, err := os.Stat(filepath.Join(dir, ".run")); !os.IsNotExist(err) {
		t.Errorf("after make run-clean: .run: %v, want none", err)
	}
}
