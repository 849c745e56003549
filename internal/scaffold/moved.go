// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
)

// movedCommands are the commands of the kit that moved: the old package, the new one, and the new words of a call.
var movedCommands = []struct{ from, to, call string }{
	{"/pkg/envtest/build", "/cmd/setup-envtest", "/cmd/setup-envtest build"},
	{"/pkg/envtest/setup", "/cmd/setup-envtest", "/cmd/setup-envtest programs"},
	{"/pkg/envtest/run", "/cmd/local-up", "/cmd/local-up"},
}

// followMoves changes the calls of commands of the kit that moved, in the Makefile and the scripts of a project, and its tools in go.mod.
func (p *project) followMoves() error {
	names, err := listed(p.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, "kit/") || filepath.Base(name) != "Makefile" && filepath.Ext(name) != ".mk" && filepath.Ext(name) != ".sh" {
			continue
		}
		before, err := os.ReadFile(p.path(name))
		if os.IsNotExist(err) {
			continue // deleted, and Git has not heard of it
		}
		if err != nil {
			return err
		}
		after := before
		for _, m := range movedCommands {
			after = bytes.ReplaceAll(after, []byte("$(KIT)"+m.from), []byte("$(KIT)"+m.call))
			after = bytes.ReplaceAll(after, []byte(kit+m.from), []byte(kit+m.call))
		}
		if !bytes.Equal(before, after) {
			if err := os.WriteFile(p.path(name), after, 0o644); err != nil { //nolint:gosec // as Git writes it
				return err
			}
		}
	}
	return p.moveTools()
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
