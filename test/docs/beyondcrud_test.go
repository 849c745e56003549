// SPDX-License-Identifier: Apache-2.0

//go:build quickstart

package docs

import (
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
)

// TestBeyondCRUD follows docs/beyond-crud.md: each section works on what the one before left.
func TestBeyondCRUD(t *testing.T) {
	d := begin(t, "beyond-crud.md")
	project := d.section(t, "A project")
	environment, create, _ := strings.Cut(project[2], "\n")
	// serve runs blocks of commands while the server runs.
	serve := func(blocks ...string) (out string) {
		t.Helper()
		running := scripttest.MakeRun(t, d.dir, project[1])
		defer running.Interrupt(t)
		for _, block := range blocks {
			out += scripttest.Shell(t, d.dir, environment+"\n"+block)
		}
		return out
	}
	action, log, roles := d.section(t, "An action"), d.section(t, "A log"), d.section(t, "Roles for users")
	out := serve(create, action[0], log[0], roles[0])
	contains(t, "action", out, `"message":"the disk is full"`, `"type":"Cancel"`)
	contains(t, "log", out, `(?s)Z generation 1\n.*Z generation 1\n.*Z generation 1\n`)
	contains(t, "roles", out, `(?s)yes\n.*no\n`)

	plugin := d.section(t, "An admission plugin that reads other objects")
	scripttest.Shell(t, d.dir, plugin[0])
	contains(t, "permission", scripttest.Shell(t, d.dir, "git diff manifests/api"), `(?m)^\+  - configmaps$`)
	scripttest.Commit(t, d.dir)
	contains(t, "plugin", serve(plugin[1]), "the namespace may have 1 runs")

	field := d.section(t, "A field that needs a permission")
	scripttest.Shell(t, d.dir, field[0])
	scripttest.Commit(t, d.dir)
	contains(t, "field", serve(field[1]), "sample patched", `User "ann" cannot prioritize resource "backupruns"`)
	scripttest.Shell(t, filepath.Join(d.dir), "make verify")
}
