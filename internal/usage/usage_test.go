// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// execute runs "tool make ..." with some flags of each kind and returns the problems, one string each.
func execute(args ...string) []string {
	root := &cobra.Command{Use: "tool", SilenceErrors: true, SilenceUsage: true, Args: NoCommand, RunE: func(*cobra.Command, []string) error { return nil }}
	root.SuggestionsMinimumDistance = 2
	root.SetOut(io.Discard)
	root.SetFlagErrorFunc(FlagErrorFunc(args))
	root.SetArgs(args)
	maker := &cobra.Command{Use: "make", Args: NoArgs, RunE: func(*cobra.Command, []string) error { return nil }}
	maker.Flags().Int("port", 1, "")
	maker.Flags().StringP("output", "o", "", "")
	maker.Flags().StringSlice("names", nil, "")
	maker.Flags().Bool("force", false, "")
	root.AddCommand(maker)
	return problems(root.Execute())
}

func problems(err error) []string {
	var e *Error
	if !errors.As(err, &e) {
		if err != nil {
			return []string{"other: " + err.Error()}
		}
		return nil
	}
	var all []string
	for _, p := range e.Problems {
		all = append(all, p.Error())
	}
	return all
}

func TestProblems(t *testing.T) {
	for _, tc := range []struct {
		args string
		want []string
	}{
		{"make --port 3 -o json --names a,b --force", nil},
		{"", nil},
		{"make --help --port 3", nil},
		{"make --colour red", []string{"unknown flag: --colour; --help lists those there are"}},
		{"make --prot=3", []string{"unknown flag: --prot; did you mean --port?"}},
		{"make --portt=3", []string{"unknown flag: --portt; did you mean --port?"}},
		{"make --ouptut=3", []string{"unknown flag: --ouptut; did you mean --output?"}},
		{"make -x", []string{"unknown flag: -x; --help lists those there are"}},
		{"make --port=abc", []string{`--port is "abc", expected int: invalid syntax`}},
		{"make --port 99999999999999999999", []string{`--port is "99999999999999999999", expected int: value out of range`}},
		{"make --force=perhaps", []string{`--force is "perhaps", expected bool: invalid syntax`}},
		{"make --port", []string{"--port has no value, expected int"}},
		{"make -o", []string{"--output has no value, expected string"}},
		{"make --=x", []string{"--=x is no flag, expected --name=value"}},
		{"make json", []string{`tool make takes flags only, found ["json"]`}},
		{"mkae", []string{`expected a command, found "mkae"; did you mean make?`}},
		{"paint", []string{`expected a command, found "paint"`}},
		// All together, in their order, and each once.
		{"make --a --port=x --b 7 --force=y --c=8 json --port=z --output", []string{
			"unknown flag: --a; --help lists those there are", `--port is "x", expected int: invalid syntax`,
			"unknown flag: --b; --help lists those there are", `--force is "y", expected bool: invalid syntax`,
			"unknown flag: --c; --help lists those there are", `--port is "z", expected int: invalid syntax`,
			"--output has no value, expected string", `tool make takes flags only, found ["json"]`,
		}},
		// The flags may stand before the command.
		{"--port=abc make", []string{`--port is "abc", expected int: invalid syntax`}},
	} {
		t.Run(tc.args, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, execute(strings.Fields(tc.args)...)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRightFlagsAreSet: what is right is there to be looked at, once.
func TestRightFlagsAreSet(t *testing.T) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	port, names := fs.Int("port", 1, ""), fs.StringSlice("names", nil, "")
	cmd := &cobra.Command{Use: "make", Args: NoArgs}
	e := Find(cmd, fs, strings.Fields("--names=a --bad --names=b --worse=1 --port=7"))
	if diff := cmp.Diff([]string{"unknown flag: --bad; --help lists those there are", "unknown flag: --worse; --help lists those there are"}, problems(e)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if *port != 7 || !cmp.Equal(*names, []string{"a", "b"}) {
		t.Errorf("got port %d and names %v, want 7 and [a b]", *port, *names)
	}
}

// TestMentions: a flag that was not understood, or perhaps meant, is the reason for what else is said about it.
func TestMentions(t *testing.T) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.Int("port", 1, "")
	fs.String("output", "", "")
	e := Find(&cobra.Command{Use: "make"}, fs, strings.Fields("--port=abc --ouput=x"))
	for text, want := range map[string]bool{
		"--port is 0":                  true,
		"set --port":                   true,
		"--port-range and --port, too": true,
		"--port-range is empty":        false,
		"--output is empty":            true,
		"port is 0":                    false,
		"--names is empty":             false,
	} {
		if got := e.Mentions(text); got != want {
			t.Errorf("%q mentions a wrong flag: got %t, want %t", text, got, want)
		}
	}
}

// TestOtherErrors: what the command itself finds wrong is no wrong usage.
func TestOtherErrors(t *testing.T) {
	other := errors.New("disk full")
	root := &cobra.Command{Use: "tool", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return other }}
	root.SetArgs(nil)
	if err := root.Execute(); !errors.Is(err, other) || problems(err)[0] != "other: disk full" {
		t.Errorf("got %v, want %v alone", err, other)
	}
}
