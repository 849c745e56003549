// SPDX-License-Identifier: Apache-2.0

// Package cli executes the command lines of all programs: exit codes, printed errors, and the flag
// --output.
package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// ExitUsage is the exit code for a usage error. The command has not started in that case.
const ExitUsage = 2

// Error makes a program exit with an exit code other than 1.
type Error struct {
	Code int
	// Errs are printed, each on a line of its own.
	Errs []error
	// NoHint omits the hint at the help, for an error with the code ExitUsage whose cause is not the
	// command line.
	NoHint bool
}

// UsageError returns an Error for a usage error.
func UsageError(errs ...error) *Error { return &Error{Code: ExitUsage, Errs: errs} }

// UsageErrorf returns an Error for a usage error with one cause.
func UsageErrorf(format string, args ...any) *Error { return UsageError(fmt.Errorf(format, args...)) }

func (e *Error) Error() string {
	if len(e.Errs) == 0 {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return errors.Join(e.Errs...).Error()
}

// Unwrap lets errors.As and errors.Is see each cause.
func (e *Error) Unwrap() []error { return e.Errs }

// Run executes the command line of a program, prints the error on the command's standard error,
// and returns the exit code: 0, that of an *Error, ExitUsage if cobra rejects the command line, or
// 1. The functions may replace an error that a command returns.
func Run(ctx context.Context, root *cobra.Command, replace ...func(error) error) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	started := false
	noteStart(root, &started)
	executed, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if started {
		for _, with := range replace {
			err = with(err)
		}
	}
	end, ok := errors.AsType[*Error](err)
	switch {
	case ok:
	case started:
		end = &Error{Code: 1, Errs: []error{err}}
	default:
		end = UsageError(err)
	}
	stderr := root.ErrOrStderr()
	for _, err := range end.Errs {
		text := strings.TrimSpace(err.Error())
		fmt.Fprintf(stderr, "%s: %s\n", root.DisplayName(), strings.ReplaceAll(text, "\n", "\n  "))
	}
	if end.Code == ExitUsage && !end.NoHint {
		fmt.Fprintf(stderr, "See '%s --help' for usage.\n", executed.CommandPath())
	}
	return end.Code
}

// noteStart sets started when any of the commands runs, because cobra has then accepted the
// command line.
func noteStart(cmd *cobra.Command, started *bool) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return run(cmd, args)
		}
	}
	for _, child := range cmd.Commands() {
		noteStart(child, started)
	}
}

// Group turns a command into one without work of its own, and returns it. It prints help, and
// rejects arguments, which are unknown commands.
func Group(cmd *cobra.Command) *cobra.Command {
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
		if names := cmd.SuggestionsFor(args[0]); len(names) > 0 {
			text += "; did you mean " + strings.Join(names, " or ") + "?"
		}
		return errors.New(text)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// MarkRequired makes cobra reject a command line without the flags. The usage texts of the flags
// must say so. It panics if the command has no such flag.
func MarkRequired(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
}

// Named returns the help text with SERVER replaced by the name of the program.
func Named(program, help string) string { return strings.ReplaceAll(help, "SERVER", program) }
