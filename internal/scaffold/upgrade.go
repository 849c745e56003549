// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// upgrade upgrades a project to a version of the kit, or to the directory to which go.mod refers.
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
		return fmt.Errorf("upgrade to %s: go.mod refers to the kit by replace; remove the replace, or leave "+
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
		// The new version decides which files it copies.
		return w.step("Copying files of the kit", func() error {
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
		fmt.Fprintf(w.out, "Copied the kit from the directory in go.mod. Run: make test\n")
	} else {
		fmt.Fprintf(w.out, "Upgraded the kit from %s to %s. Run: make test\n", before, after)
	}
	return nil
}

// kitOf returns the version of the kit in go.mod, and whether go.mod refers to a directory instead.
func kitOf(mod *modfile.File) (version string, replaced bool) {
	for _, r := range mod.Replace {
		if r.Old.Path == kit && r.New.Version == "" {
			replaced = true
		}
	}
	return requirement(mod, kit), replaced
}

// takeFiles is the part of an upgrade that the new version runs: it copies its files, except those
// that the team edited, and sets its versions of modules.
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
	docs, err := os.ReadFile(p.path("kit", docsURLFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := errors.Join(os.RemoveAll(p.path("kit")),
		copyKit(from, p.dir, strings.TrimSpace(string(docs)))); err != nil {
		return err
	}
	for _, name := range edited {
		data, ok := kept[name]
		if !ok {
			fmt.Fprintf(w.out, "  restored kit/%s, which you deleted\n", name)
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

// requirement returns the version of a module in go.mod.
func requirement(mod *modfile.File, path string) string {
	for _, r := range mod.Require {
		if r.Mod.Path == path {
			return r.Mod.Version
		}
	}
	return ""
}

// edited returns the files in kit/ that differ from the kit's.
func (p *project) edited() ([]string, error) {
	sums, err := os.ReadFile(p.path("kit", sumsFile))
	if err != nil {
		return nil, fmt.Errorf("read checksums of the kit's files: %w; restore the file from Git", err)
	}
	var edited []string
	for line := range strings.Lines(string(sums)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			return nil, fmt.Errorf("kit/%s: line %q, expected a checksum and a name; restore the file from Git",
				sumsFile, line)
		}
		data, err := os.ReadFile(p.path("kit", name))
		if err != nil || fmt.Sprintf("%x", sha256.Sum256(data)) != sum {
			edited = append(edited, name)
		}
	}
	return edited, nil
}

// alignTypes sets the versions of the types' module to those that the kit was tested with.
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

// kitOfVersion returns the directory of a version of the kit, or of the module of the working
// directory if version is empty.
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

// kitDir returns the directory of the kit that a project uses.
func kitDir(ctx context.Context, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", kit)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || len(bytes.TrimSpace(out)) == 0 {
		return "", fmt.Errorf("find the kit of %s: %w: %s", dir, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// ownVersion returns the version of the kit in this program; "(devel)" or empty if it was built in
// a checkout.
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

// checkVersion returns an error if the project uses another version of the kit than this program.
func (p *project) checkVersion(own string) error {
	mod, err := readMod(filepath.Join(p.dir, "go.mod"))
	if err != nil {
		return err
	}
	if version, replaced := kitOf(mod); !replaced && semver.IsValid(own) && semver.Compare(version, own) > 0 {
		return fmt.Errorf("the project uses %s %s, and this scaffold is %s; use the project's: go tool "+
			"scaffold", kit, version, own)
	}
	return nil
}
