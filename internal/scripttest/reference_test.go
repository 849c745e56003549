// SPDX-License-Identifier: Apache-2.0

package scripttest

import (
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestSection checks the Markdown of a command.
func TestSection(t *testing.T) {
	cmd := &cobra.Command{Use: "tool NAME", Short: "Sort", Long: `Sort a <file>.

States:
  ok        sorted
  not yet   not
            sorted
  a.txt
            a file

Also:
  - one
  - two`, Example: "  # Sort\n  tool a", Run: func(*cobra.Command, []string) {}}
	cmd.Flags().StringP("namespace", "n", "demo", "Namespace of a|b.")
	cmd.Flags().Bool("library", false, "Read the list\nfrom a file.")
	want := strings.ReplaceAll(`## tool

Sort a \<file>.

States:

* 'ok': sorted
* 'not yet': not sorted
* 'a.txt': a file

Also:

* one
* two

'''text
tool NAME [flags]
'''

'''sh
# Sort
tool a
'''

| flag | default | meaning |
|---|---|---|
| '-n, --namespace string' | 'demo' | Namespace of a\|b. |

Flags of the Kubernetes libraries:

<!-- vale off -->

| flag | default | meaning |
|---|---|---|
| '--library' |  | Read the list<br>from a file. |

<!-- vale on -->`, "'", "`")
	got := section(cmd, func(f *pflag.Flag) bool { return f.Name == "library" })
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("section (-want +got):\n%s", diff)
	}
}

// TestStyleProblems checks that each deviation from the style of commands is found.
func TestStyleProblems(t *testing.T) {
	cmd := &cobra.Command{Use: "tool", Short: "Sort.", Run: func(*cobra.Command, []string) {}}
	cmd.Flags().String("namespace", "", "Namespace.")
	cmd.Flags().String("from", "", "File. Required.")
	got := strings.Join(styleProblems(cmd, func(*pflag.Flag) bool { return false }), "\n")
	for _, want := range []string{"without a period", "no example", "no shorthand -n",
		"--from: marked as required: false"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %q in it", got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	word := strings.Repeat("a", 49)
	if got, want := wrap(word+" "+word+" b c", "  "), word+" "+word+"\n  b c"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
