// SPDX-License-Identifier: Apache-2.0

package scripttest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Reference checks that the commands of a program have the common style, and that the page
// docs/reference/NAME.md has their help texts. With update, it writes the page. Vale checks the
// pages, because it does not read the strings of Go files. library reports whether the usage text
// of a flag is that of a library; nil means that none is. The test's directory must be two levels
// below the root, and the test must have the name TestReference and a flag -update.
func Reference(t *testing.T, root *cobra.Command, update bool, library func(*pflag.Flag) bool) {
	t.Helper()
	if library == nil {
		library = func(*pflag.Flag) bool { return false }
	}
	if root.Version == "" || !slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool {
		return c.Name() == "version"
	}) {
		t.Errorf("%s has no flag --version, or no command version", root.Name())
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := filepath.Rel(filepath.Join(dir, "..", ".."), dir)
	if err != nil {
		t.Fatal(err)
	}
	var sections []string
	eachCommand(root, func(cmd *cobra.Command) {
		for _, problem := range styleProblems(cmd, library) {
			t.Errorf("%s: %s", cmd.CommandPath(), problem)
		}
		sections = append(sections, section(cmd, library))
	})
	Generated(t, filepath.Join("..", "..", "docs", "reference", root.Name()+".md"),
		"go test ./"+filepath.ToSlash(pkg)+" -run TestReference -update", strings.Join(sections, "\n\n")+"\n", update)
}

// Generated compares the generated part of a page with the wanted text, or with update writes it.
// The part is between <!-- begin: COMMAND --> and <!-- end -->, where the command writes it.
func Generated(t *testing.T, page, command, want string, update bool) {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- begin: "+command+" -->\n\n", "\n<!-- end -->"
	before, rest, _ := strings.Cut(string(data), begin)
	have, after, found := strings.Cut(rest, end)
	switch {
	case !found:
		t.Fatalf("%s has no lines %q and %q", page, begin, end)
	case have == want:
	case !update:
		t.Fatalf("%s is not current; run: %s\n%s", page, command, gocmp.Diff(have, want))
	default:
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, child := range cmd.Commands() {
		if !child.Hidden && child.Deprecated == "" {
			eachCommand(child, do)
		}
	}
}

const examplesHeading = "\n\nExamples:\n"

// styleProblems returns the differences between a command and the common style.
func styleProblems(cmd *cobra.Command, library func(*pflag.Flag) bool) []string {
	var problems []string
	if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
		problems = append(problems, fmt.Sprintf("summary %q, want one line without a period", cmd.Short))
	}
	if cmd.Example == "" && !strings.Contains(cmd.Long, examplesHeading) {
		problems = append(problems, "no example")
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		marked := len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0
		if says := strings.HasSuffix(f.Usage, "Required."); says != marked && !library(f) {
			problems = append(problems, fmt.Sprintf("--%s: marked as required: %t, usage says so: %t", f.Name, marked, says))
		}
		if f.Name == "namespace" && f.Shorthand != "n" {
			problems = append(problems, "--namespace has no shorthand -n")
		}
	})
	return problems
}

// section returns the section of a command, in Markdown.
func section(cmd *cobra.Command, library func(*pflag.Flag) bool) string {
	long, example, _ := strings.Cut(cmp.Or(cmd.Long, cmd.Short+"."), examplesHeading)
	example = strings.ReplaceAll("\n"+cmp.Or(cmd.Example, example), "\n  ", "\n")
	blocks := []string{
		"## " + cmd.CommandPath(), prose(long), "```text\n" + cmd.UseLine() + "\n```", "```sh" + example + "\n```",
	}
	flags := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	flags.AddFlagSet(cmd.LocalFlags())
	flags.AddFlagSet(cmd.InheritedFlags())
	if table := flagTable(flags, func(f *pflag.Flag) bool { return !library(f) }); table != "" {
		blocks = append(blocks, table)
	}
	if table := flagTable(flags, library); table != "" {
		blocks = append(blocks, "Flags of the Kubernetes libraries:", "<!-- vale off -->", table, "<!-- vale on -->")
	}
	return strings.Join(blocks, "\n\n")
}

// flagTable returns a table of the visible flags that include selects; empty if there are none.
func flagTable(flags *pflag.FlagSet, include func(*pflag.Flag) bool) string {
	var rows []string
	cell := strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`, "\n", "<br>").Replace
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" || !include(f) {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := strings.TrimSpace("--" + f.Name + " " + value)
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		standard := ""
		if !slices.Contains([]string{"", "0", "0s", "false", "[]"}, f.DefValue) {
			standard = "`" + cell(f.DefValue) + "`"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", name, standard, cell(usage)))
	})
	if len(rows) == 0 {
		return ""
	}
	return "| flag | default | meaning |\n|---|---|---|\n" + strings.Join(rows, "\n")
}

var (
	dashItem = regexp.MustCompile(`^  - (.*)$`)
	termItem = regexp.MustCompile(`^  (\S+(?: \S+)*?)(?:  +(\S.*))?$`)
)

// prose returns a help text as Markdown. Lines that are indented by two spaces become the items of
// a list, so that Vale does not take them for code.
func prose(help string) string {
	var blocks []string
	escape := strings.NewReplacer("<", `\<`, "*", `\*`).Replace
	for paragraph := range strings.SplitSeq(strings.TrimSpace(help), "\n\n") {
		var text strings.Builder
		var items []string
		for line := range strings.SplitSeq(paragraph, "\n") {
			dash, term := dashItem.FindStringSubmatch(line), termItem.FindStringSubmatch(line)
			switch {
			case dash != nil:
				items = append(items, "* "+escape(dash[1]))
			case term != nil:
				items = append(items, "* `"+term[1]+"`: "+escape(term[2]))
			case len(items) > 0:
				items[len(items)-1] += " " + escape(line)
			default:
				text.WriteString(" " + escape(line))
			}
		}
		if text.Len() > 0 {
			blocks = append(blocks, wrap(text.String(), ""))
		}
		for i := range items {
			items[i] = wrap(items[i], "  ")
		}
		if len(items) > 0 {
			blocks = append(blocks, strings.Join(items, "\n"))
		}
	}
	return strings.Join(blocks, "\n\n")
}

// wrap breaks text into lines of at most 100 bytes. All but the first begin with the indent.
func wrap(text, indent string) string {
	var out strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		width := len(word)
		switch {
		case i == 0:
		case column+1+width > 100:
			out.WriteString("\n" + indent)
			column = len(indent)
		default:
			out.WriteString(" ")
			column++
		}
		out.WriteString(word)
		column += width
	}
	return out.String()
}
