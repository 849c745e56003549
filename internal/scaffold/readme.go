// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// kindsTable is the header of the table of kinds in README.md. A README without the table stays
// unchanged.
const kindsTable = "| kind | resource | group | rules and storage |\n|---|---|---|---|\n"

// kindRow returns the row of a kind.
func (p *project) kindRow(g Group, k Kind) string {
	folder := "registry/" + g.Package + "/" + k.Package()
	return fmt.Sprintf("| %s | %s | %s | [%s](%s) |\n", k.Kind,
		strings.Join(slices.Concat([]string{k.Plural}, k.ShortNames), ", "), g.Name, folder, folder)
}

// listKind adds a kind to the table in README.md.
func (p *project) listKind(g Group, k Kind) error {
	return p.editReadme(func(text string) string {
		before, after, found := strings.Cut(text, kindsTable)
		if !found {
			return text
		}
		rows := 0
		for line := range strings.Lines(after) {
			if !strings.HasPrefix(line, "|") {
				break
			}
			rows += len(line)
		}
		return before + kindsTable + after[:rows] + p.kindRow(g, k) + after[rows:]
	})
}

// unlistKind removes a kind from the table.
func (p *project) unlistKind(g Group, k Kind) error {
	return p.editReadme(func(text string) string { return strings.Replace(text, p.kindRow(g, k), "", 1) })
}

func (p *project) editReadme(edit func(string) string) error {
	text, err := os.ReadFile(p.path("README.md"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(p.path("README.md"), []byte(edit(string(text))), 0o644) //nolint:gosec // as Git writes it
}
