// SPDX-License-Identifier: Apache-2.0

package scripttest

import (
	"os"
	"regexp"
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
