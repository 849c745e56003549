// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// upgrade moves a project to a version of the kit. Where go.mod refers to a directory, it takes what is there now.
func (w work) upgrade(p *project, version string) error {
	if !p.owned() {
		return errors.New("this is a checkout of the kit, not a project; run git pull instead")
	}
	mod, err := readMod(p.path("go.mod"))
	if err != nil {
		return err
	}
	before, replaced := kitOf(mod)
	if replaced && version != "" {
		return fmt.Errorf("go.mod refers to the kit by replace, and %s cannot be had; remove the replace, or leave "+
			"the version out", version)
	}
	if version == "" {
		version = "latest"
	}
	if problems := checkTools(); len(problems) > 0 {
		return errors.Join(problems...)
	}
	after := ""
	if err := w.change(p, "Upgraded.", func(p *project) error {
		if !replaced {
			if err := w.step("Getting "+kit+"@"+version, func() error {
				return w.run(p.dir, nil, "go", "get",
					kit+"@"+version)
			}); err != nil {
				return err
			}
		}
		// What is copied is for the new version to say.
		return w.step("Taking the files of the kit", func() error {
			cmd := exec.CommandContext(w.ctx, "go", "run", "-mod=mod", kit+"/cmd/scaffold", "upgrade", "--files-only")
			cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, w.out, w.out
			if err := cmd.Run(); err != nil {
				return err
			}
			mod, err := readMod(p.path("go.mod"))
			if err == nil {
				after, _ = kitOf(mod)
			}
			return err
		})
	}); err != nil {
		return err
	}
	if replaced {
		fmt.Fprintf(w.out, "The kit is that of the directory in go.mod. Run: make test\n")
	} else {
		fmt.Fprintf(w.out, "The kit was %s and is %s. Run: make test\n", before, after)
	}
	return nil
}

// kitOf is the version of the kit in a go.mod, and whether a directory is used instead.
func kitOf(mod *modfile.File) (version string, replaced bool) {
	for _, r := range mod.Replace {
		if r.Old.Path == kit && r.New.Version == "" {
			replaced = true
		}
	}
	return requirement(mod, kit), replaced
}

// takeFiles is the part of an upgrade that the new version does: its files, but those that the team edited, and its
// versions of modules.
func (w work) takeFiles(p *project) error {
	from, err := kitDir(w.ctx, p.dir)
	if err != nil {
		return err
	}
	edited, err := p.edited()
	if err != nil {
		return err
	}
	kept := map[string][]byte{}
	for _, name := range edited {
		if data, err := os.ReadFile(p.path("kit", name)); err == nil {
			kept[name] = data
		}
	}
	if err := errors.Join(os.RemoveAll(p.path("kit")), copyKit(from, p.dir)); err != nil {
		return err
	}
	for _, name := range edited {
		data, ok := kept[name]
		if !ok {
			fmt.Fprintf(w.out, "  you deleted kit/%s; it is there again\n", name)
			continue
		}
		fmt.Fprintf(w.out, "  kept kit/%s, which you edited; compare it with %s\n", name, filepath.Join(from, name))
		if err := os.MkdirAll(filepath.Dir(p.path("kit", name)), 0o755); err != nil { //nolint:gosec // as Git makes it
			return err
		}
		if err := os.WriteFile(p.path("kit", name), data, 0o644); err != nil { //nolint:gosec // as Git writes it
			return err
		}
	}
	if err := p.followMoves(); err != nil {
		return err
	}
	return p.alignTypes(from)
}

// requirement is the version of a module that a go.mod names.
func requirement(mod *modfile.File, path string) string {
	for _, r := range mod.Require {
		if r.Mod.Path == path {
			return r.Mod.Version
		}
	}
	return ""
}

// edited are the files in kit/ that are not as the kit had them.
func (p *project) edited() ([]string, error) {
	sums, err := os.ReadFile(p.path("kit", sumsFile))
	if err != nil {
		return nil, fmt.Errorf("read the sums of the files of the kit: %w; restore that file from Git", err)
	}
	var edited []string
	for line := range strings.Lines(string(sums)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			return nil, fmt.Errorf("kit/%s has the line %q, expected a sum and a name; restore that file from Git",
				sumsFile, line)
		}
		data, err := os.ReadFile(p.path("kit", name))
		if err != nil || fmt.Sprintf("%x", sha256.Sum256(data)) != sum {
			edited = append(edited, name)
		}
	}
	return edited, nil
}

// alignTypes gives the module of the types the versions that the kit was tested with.
func (p *project) alignTypes(from string) error {
	kitMod, err := readMod(filepath.Join(from, "go.mod"))
	if err != nil {
		return err
	}
	path := p.path("apis", "go.mod")
	types, err := readMod(path)
	if err != nil {
		return err
	}
	for _, r := range types.Require {
		if version := requirement(kitMod, r.Mod.Path); semver.Compare(version, r.Mod.Version) > 0 {
			if err := types.AddRequire(r.Mod.Path, version); err != nil {
				return err
			}
		}
	}
	text, err := types.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644) //nolint:gosec // as Git writes it
}

// kitOfVersion is the directory of a version of the kit; without one, that which the working directory is in.
func kitOfVersion(ctx context.Context, version string) (string, error) {
	if version == "" {
		return kitDir(ctx, ".")
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", kit+"@"+version)
	cmd.Dir = os.TempDir() // in no module
	out, err := cmd.Output()
	module := struct{ Dir, Error string }{}
	if err := errors.Join(err, json.Unmarshal(out, &module)); err != nil || module.Error != "" {
		return "", fmt.Errorf("get the files of %s %s: %w %s", kit, version, err, module.Error)
	}
	return module.Dir, nil
}

// kitDir is the directory of the kit that a project uses.
func kitDir(ctx context.Context, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", kit)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || len(bytes.TrimSpace(out)) == 0 {
		return "", fmt.Errorf("find the kit that %s uses: %w: %s", dir, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// ownVersion is that of the kit in this program; "(devel)" or empty when it was built in a checkout.
func ownVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if info.Main.Path == kit {
		return info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == kit && dep.Replace == nil {
			return dep.Version
		}
	}
	return ""
}

// checkVersion refuses a project that was made with a newer kit.
func (p *project) checkVersion(own string) error {
	mod, err := readMod(filepath.Join(p.dir, "go.mod"))
	if err != nil {
		return err
	}
	if version, replaced := kitOf(mod); !replaced && semver.IsValid(own) && semver.Compare(version, own) > 0 {
		return fmt.Errorf("the project uses %s %s, and this scaffold is of %s; use that of the project: go tool "+
			"scaffold", kit, version, own)
	}
	return nil
}
