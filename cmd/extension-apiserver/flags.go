// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// flagErrors returns everything that is wrong with the arguments. pflag stops at the first wrong one, so that one is
// taken out and the rest is parsed again, until nothing is wrong.
func flagErrors(fs *pflag.FlagSet, args []string) []error {
	var errs []error
	for range len(args) {
		err := fs.Parse(args)
		if err == nil {
			break
		}
		flag, advice := explain(err)
		errs = append(errs, fmt.Errorf("%w%s", err, advice))
		rest := without(args, flag)
		if len(rest) == len(args) {
			break
		}
		args = rest
	}
	return errs
}

// explain returns the flag as it stands in the arguments, and what would be right.
func explain(err error) (flag, advice string) {
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	var syntax *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &unknown):
		return "--" + unknown.GetSpecifiedName(), "; expected one of the flags in --help"
	case errors.As(err, &missing):
		return "--" + missing.GetSpecifiedName(), fmt.Sprintf("; expected a value of type %s", missing.GetFlag().Value.Type())
	case errors.As(err, &invalid):
		return "--" + invalid.GetFlag().Name, fmt.Sprintf("; expected a value of type %s", invalid.GetFlag().Value.Type())
	case errors.As(err, &syntax):
		return syntax.GetSpecifiedFlag(), "; expected --name=value"
	}
	return "", ""
}

// without takes the flag's first occurrence out, with its value where that is an argument of its own.
func without(args []string, flag string) []string {
	for i, arg := range args {
		name, _, inline := strings.Cut(arg, "=")
		if name != flag && arg != flag {
			continue
		}
		end := i + 1
		if !inline && end < len(args) && !strings.HasPrefix(args[end], "-") {
			end++
		}
		return append(append([]string{}, args[:i]...), args[end:]...)
	}
	return args
}
