// SPDX-License-Identifier: Apache-2.0

package scripttest

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Section returns the text of a documentation page under a heading of the second level. It fails
// the test if the heading does not exist.
func Section(t *testing.T, page, heading string) string {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(data), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading ## %s", page, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// Blocks returns the contents of the ```sh blocks of Markdown text.
func Blocks(text string) []string {
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// Step is a block of commands of a page, and the output that the page shows for them.
type Step struct{ Commands, Output string }

// Steps returns the ```sh blocks of Markdown text, each with the ```text block that follows it
// before the next ```sh block.
func Steps(text string) []Step {
	var steps []Step
	for _, m := range regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		switch {
		case m[1] == "sh":
			steps = append(steps, Step{Commands: m[2]})
		case len(steps) > 0:
			steps[len(steps)-1].Output += m[2]
		}
	}
	return steps
}

// Compare returns the lines of the page's output that the commands did not print, in this order.
// It treats several spaces as one. A line of the page can be a part of a printed line, and "…"
// stands for any text.
func (s Step) Compare(printed string) (missing []string) {
	lines := strings.Split(printed, "\n")
	for line := range strings.Lines(s.Output) {
		var pattern []string
		for part := range strings.SplitSeq(strings.Join(strings.Fields(line), " "), "…") {
			pattern = append(pattern, strings.ReplaceAll(regexp.QuoteMeta(part), " ", `\s+`))
		}
		match := regexp.MustCompile(strings.Join(pattern, ".*"))
		at := slices.IndexFunc(lines, match.MatchString)
		if at < 0 {
			missing = append(missing, fmt.Sprintf("no line matches %q", strings.TrimSpace(line)))
			continue
		}
		lines = lines[at+1:]
	}
	return missing
}
