// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/mod/modfile"
)

// movedCommands are commands of the kit that moved: the old package, the new package, and the new
// call.
var movedCommands = []struct{ from, to, call string }{
	{"/pkg/envtest/build", "/cmd/setup-envtest", "/cmd/setup-envtest build"},
	{"/pkg/envtest/setup", "/cmd/setup-envtest", "/cmd/setup-envtest programs"},
	{"/pkg/envtest/run", "/cmd/local-up", "/cmd/local-up"},
}

// localUpFlags matches the flags of local-up as earlier Makefiles have them, with one dash.
var localUpFlags = regexp.MustCompile(`(bin/(?:local-up|run)) -server (\S+) -objects (\S+)`)

// followMoves replaces calls of moved commands in the Makefile and scripts of a project, and its
// tools in go.mod.
func (p *project) followMoves() error {
	err := filepath.WalkDir(p.dir, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if path == p.path("kit") || name == ".git" {
				return filepath.SkipDir
			}
			return nil
		case name != "Makefile" && filepath.Ext(name) != ".mk" && filepath.Ext(name) != ".sh":
			return nil
		}
		return followCalls(path)
	})
	if err != nil {
		return err
	}
	return p.moveTools()
}

func followCalls(path string) error {
	before, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	after := before
	for _, m := range movedCommands {
		after = bytes.ReplaceAll(after, []byte("$(KIT)"+m.from), []byte("$(KIT)"+m.call))
		after = bytes.ReplaceAll(after, []byte(kit+m.from), []byte(kit+m.call))
	}
	after = localUpFlags.ReplaceAll(after, []byte("${1} --server ${2} --objects ${3}"))
	if bytes.Equal(before, after) {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, after, info.Mode())
}

func (p *project) moveTools() error {
	mod, err := readMod(p.path("go.mod"))
	if err != nil {
		return err
	}
	old := map[string]string{}
	for _, m := range movedCommands {
		old[kit+m.from] = kit + m.to
	}
	moved := false
	for _, tool := range append([]*modfile.Tool(nil), mod.Tool...) {
		if to := old[tool.Path]; to != "" {
			moved = true
			if err := mod.DropTool(tool.Path); err != nil {
				return err
			}
			if err := mod.AddTool(to); err != nil {
				return err
			}
		}
	}
	if !moved {
		return nil
	}
	mod.Cleanup()
	text, err := mod.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(p.path("go.mod"), text, 0o644) //nolint:gosec // as Git writes it
}
