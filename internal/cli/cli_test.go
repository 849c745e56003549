// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// TestRun checks exit codes and the output on standard error.
func TestRun(t *testing.T) {
	const see, seeMake = "See 'tool --help' for usage.\n", "See 'tool make --help' for usage.\n"
	for _, tc := range []struct {
		args   string
		err    error // of the command make
		code   int
		stderr string
	}{
		{args: "make --port 3 -o json"},
		{args: "make --help"},
		{args: ""},
		{args: "make --port=abc", code: 2,
			stderr: `tool: invalid argument "abc" for "--port" flag: strconv.ParseInt: parsing "abc": invalid syntax` +
				"\n" + seeMake},
		{args: "make --prot=3", code: 2, stderr: "tool: unknown flag: --prot\n" + seeMake},
		{args: "make extra", code: 2, stderr: "tool: unknown command \"extra\" for \"tool make\"\n" + seeMake},
		{args: "make -o yaml", code: 2,
			stderr: "tool: invalid argument \"yaml\" for \"-o, --output\" flag: expected text or json\n" + seeMake},
		{args: "take", code: 2, stderr: "tool: required flag(s) \"from\" not set\nSee 'tool take --help' for usage.\n"},
		{args: "take --from=a"},
		{args: "maek", code: 2,
			stderr: "tool: unknown command \"maek\" for \"tool\"\n  \n  Did you mean this?\n  \tmake\n" + see},
		{args: "more mak", code: 2,
			stderr: "tool: unknown command \"mak\" for \"tool more\"; did you mean make?\nSee 'tool more --help' " +
				"for usage.\n"},
		{args: "more"},
		{args: "make", err: errors.New("read a file"), code: 1, stderr: "tool: read a file\n"},
		{args: "make", err: UsageError(errors.New("--port is 0"), errors.New("--name is not set")), code: 2,
			stderr: "tool: --port is 0\ntool: --name is not set\n" + seeMake},
		{args: "make", err: &Error{Code: 3}, code: 3},
		{args: "make", err: &Error{Code: 2, Errs: []error{errors.New("no cluster")}, NoHint: true}, code: 2,
			stderr: "tool: no cluster\n"},
		{args: "make", err: errors.New("replaced"), code: 4, stderr: "tool: by another\n"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			root := &cobra.Command{Use: "tool"}
			maker := &cobra.Command{Use: "make", Args: cobra.NoArgs,
				RunE: func(*cobra.Command, []string) error { return tc.err }}
			maker.Flags().Int("port", 1, "")
			var format Format
			AddOutputFlag(maker, &format)
			more := Group(&cobra.Command{Use: "more"})
			more.AddCommand(&cobra.Command{Use: "make", RunE: func(*cobra.Command, []string) error { return nil }})
			take := &cobra.Command{Use: "take", RunE: func(*cobra.Command, []string) error { return nil }}
			take.Flags().String("from", "", "")
			MarkRequired(take, "from")
			root.AddCommand(maker, more, take)
			root.SetArgs(strings.Fields(tc.args))
			var stdout, stderr strings.Builder
			root.SetOut(&stdout)
			root.SetErr(&stderr)
			code := Run(t.Context(), root, func(err error) error {
				if err != nil && err.Error() == "replaced" {
					return &Error{Code: 4, Errs: []error{errors.New("by another")}}
				}
				return err
			})
			if code != tc.code {
				t.Errorf("got exit code %d, want %d", code, tc.code)
			}
			if diff := cmp.Diff(tc.stderr, stderr.String()); diff != "" {
				t.Errorf("standard error (-want +got):\n%s", diff)
			}
		})
	}
}
