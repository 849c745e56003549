// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/extension-apiserver/internal/catalogue"
)

var update = flag.Bool("update", false, "write the table of docs/operate/troubleshooting.md")

// TestMessages checks that each message leads to its entry, and that no entry explains itself.
func TestMessages(t *testing.T) {
	for _, e := range catalogue.Entries() {
		for from, messages := range [][]string{e.Messages, e.Logs, e.Client} {
			for _, message := range messages {
				id := classify(catalogue.Source(from), strings.ReplaceAll(message, "…", "x"))
				if id != e.ID && e.ID != unavailable {
					t.Errorf("%s: the message %q leads to %q", e.ID, message, id)
				}
			}
		}
		if slices.Contains(causes(e), e.ID) {
			t.Errorf("%s explains itself", e.ID)
		}
	}
}

// causes returns the IDs of the entries that explain the entry, also through others.
func causes(e catalogue.Entry) []string {
	out := slices.Clone(e.ExplainedBy)
	for i := 0; i < len(out); i++ {
		out = union(out, catalogue.Of(out[i]).ExplainedBy)
	}
	return out
}

func TestClassify(t *testing.T) {
	for text, want := range map[string]string{
		"failing or missing response from https://a/apis/g/v1: bad status from https://a/apis/g/v1: 404":          "D02",
		"failing or missing response from https://a/apis/g/v1: bad status from https://a/apis/g/v1: 4040":         "",
		"error trying to reach service: dial tcp 10.0.0.1:443: connect: connection refused":                       "S06",
		"x509: certificate is valid for localhost, not api.wardle.svc":                                            "C04",
		`service/a in "b" is not listening on port 443`:                                                           "S02",
		"the server is currently unable to handle the request":                                                    "",
		`Get "https://a": proxyconnect tcp: dial tcp 127.0.0.1:1: connect: connection refused`:                    "S14",
		`x509: certificate signed by unknown authority (possibly because of "crypto/rsa: verification error" ...`: "K14",
		"Internal error occurred: subjectaccessreviews.authorization.k8s.io is forbidden: User \"x\" cannot ...":  "R02",
	} {
		if got := classify(catalogue.InMessage, text); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestDocs compares the table of the page with the catalogue, or writes it with -update.
func TestDocs(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "operate", "troubleshooting.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- begin: go test ./internal/doctor -run TestDocs -update -->\n\n", "\n<!-- end -->"
	before, rest, _ := strings.Cut(string(data), begin)
	have, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("%s has no lines %q and %q", path, begin, end)
	}
	want := findingsTable()
	if have == want {
		return
	}
	if !*update {
		t.Fatalf("the findings are not current; run: go test ./internal/doctor -run TestDocs -update\n%s", cmp.Diff(have, want))
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

func findingsTable() string {
	var out strings.Builder
	out.WriteString("| id | severity | finding | error messages | fix | symptom of |\n|---|---|---|---|---|---|\n")
	cell := strings.NewReplacer("|", `\|`, "<", `\<`).Replace
	for _, e := range catalogue.Entries() {
		if e.Layer == "" {
			continue
		}
		var messages, fixes []string
		for _, m := range union(nil, slices.Concat(e.Messages, e.Logs, e.Client)) {
			messages = append(messages, "`"+m+"`")
		}
		for _, step := range e.Fix {
			fixes = append(fixes, fill(step.Text))
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s |\n", e.ID, e.Severity, cell(e.Title),
			strings.Join(messages, ", "), cell(strings.Join(fixes, " ")), strings.Join(e.ExplainedBy, ", "))
	}
	return out.String()
}

var parameter = regexp.MustCompile(`\{[a-zA-Z]+\}`)

// fill replaces the parameters of a text for readers: {group} becomes GROUP.
func fill(text string) string {
	return parameter.ReplaceAllStringFunc(text, func(p string) string { return strings.ToUpper(strings.Trim(p, "{}")) })
}
