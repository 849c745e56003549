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
)

var update = flag.Bool("update", false, "write the table of docs/operate/troubleshooting.md")

// forbidden are parts of commands that disable TLS verification, grant too much, or delete data.
var forbidden = regexp.MustCompile(`insecure-skip|insecureSkipTLSVerify\\?":true|cluster-admin|\*|finalizers|` +
	`delete (ns|namespaces?|pvc|secrets?|customresourcedefinitions?|crds?)\b|--force\b`)

func TestCatalogue(t *testing.T) {
	var ids []string
	for _, e := range Catalogue() {
		if slices.Contains(ids, e.ID) {
			t.Errorf("%s occurs twice", e.ID)
		}
		ids = append(ids, e.ID)
		if !slices.Contains(Layers, e.Layer) || rank(e.Severity) < 0 || e.Title == "" || e.Effect == "" || len(e.Fix) == 0 {
			t.Errorf("%s: want a layer, a severity, a title, an effect and a fix", e.ID)
		}
		for _, step := range e.Fix {
			if step.Text == "" || step.Command == "" || forbidden.MatchString(step.Command) {
				t.Errorf("%s: the step %+v has no text, no command or a forbidden one", e.ID, step)
			}
		}
		for from, messages := range [][]string{e.Messages, e.Logs, e.Client} {
			for _, message := range messages {
				if id := classify(source(from), strings.ReplaceAll(message, "…", "x")); id != e.ID && e.ID != unavailable {
					t.Errorf("%s: the message %q leads to %q", e.ID, message, id)
				}
			}
		}
		if slices.Contains(e.causes(), e.ID) {
			t.Errorf("%s explains itself", e.ID)
		}
	}
}

// causes returns the IDs of the entries that explain the entry, also through others.
func (e Entry) causes() []string {
	out := slices.Clone(e.ExplainedBy)
	for i := 0; i < len(out); i++ {
		out = union(out, entry(out[i]).ExplainedBy)
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
		if got := classify(inMessage, text); got != want {
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
	for _, e := range Catalogue() {
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
