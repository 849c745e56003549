// SPDX-License-Identifier: Apache-2.0

// Package usage finds everything that is wrong with a command line, so that one run shows it all, each with what would
// be right. Errors of other kinds pass through it untouched.
package usage

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ExitCode is that of a command line that cannot be understood. Nothing was started, read or written then.
const ExitCode = 2

// Error is a command line that cannot be understood: all of its problems.
type Error struct{ Problems []error }

// Errorf returns an Error with one problem.
func Errorf(format string, args ...any) *Error {
	return &Error{[]error{fmt.Errorf(format, args...)}}
}

func (e *Error) Error() string { return errors.Join(e.Problems...).Error() }

// Unwrap lets errors.As and errors.Is look at each problem.
func (e *Error) Unwrap() []error { return e.Problems }

// Text has the name of the command of a server where SERVER stands.
func Text(server, s string) string { return strings.ReplaceAll(s, "SERVER", server) }

// NoArgs refuses arguments, most of which are values whose flag was forgotten.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Errorf("%s takes flags only, found %q", cmd.CommandPath(), args)
}

// NoCommand is for the root: what it gets as an argument was meant for a command.
func NoCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Errorf("expected a command, found %q%s", args[0], didYouMean(cmd.SuggestionsFor(args[0])))
}

// FlagErrorFunc is for the root's SetFlagErrorFunc: cobra hands over the first wrong flag of args, this finds all.
func FlagErrorFunc(args []string) func(*cobra.Command, error) error {
	return func(cmd *cobra.Command, first error) error {
		e := Find(cmd, cmd.Flags(), args)
		if len(e.Problems) == 0 {
			e.Problems = []error{first}
		}
		return e
	}
}

// Find parses the whole command line with the flags, which are those of the command or their like, and returns what is
// wrong with the flags and with the other arguments.
func Find(cmd *cobra.Command, fs *pflag.FlagSet, commandLine []string) *Error {
	wrong, args := wrongFlags(fs, after(cmd, commandLine))
	e := &Error{}
	for _, flag := range wrong {
		e.Problems = append(e.Problems, flag)
	}
	// None at all can be the fault of a wrong flag, which took the first for its value.
	if err := cmd.ValidateArgs(args); err != nil && len(args) > 0 {
		e.Problems = append(e.Problems, err)
	}
	return e
}

// Mentions says whether a text speaks of a flag that is one of the problems: it has nothing to add about a value that
// was not understood.
func (e *Error) Mentions(text string) bool {
	return slices.ContainsFunc(e.Problems, func(problem error) bool {
		var flag *flagError
		return errors.As(problem, &flag) && flag.mentionedIn(text)
	})
}

// after returns the arguments without the words that name the command.
func after(cmd *cobra.Command, args []string) []string {
	rest := slices.Clone(args)
	for _, word := range strings.Fields(cmd.CommandPath())[1:] {
		if i := slices.Index(rest, word); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		}
	}
	return rest
}

func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(names, " or ") + "?"
}
