// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// flagError is one wrong flag.
type flagError struct {
	// flag is the flag as a person names it: --name, or -x. meant are those that were perhaps meant.
	flag  string
	meant []string
	// reason says what is wrong and what would be right.
	reason string
}

func (e *flagError) Error() string { return e.reason }

func (e *flagError) mentionedIn(text string) bool {
	return slices.ContainsFunc(append(e.meant, e.flag), func(flag string) bool { return mentions(text, flag) })
}

func mentions(text, flag string) bool {
	for {
		_, rest, found := strings.Cut(text, flag)
		if !found {
			return false
		}
		// The name of a longer flag goes on with these.
		if rest == "" || !strings.ContainsRune("-abcdefghijklmnopqrstuvwxyz0123456789", rune(rest[0])) {
			return true
		}
		text = rest
	}
}

// wrongFlags parses all of the arguments, sets the flags that are right, and returns those that are wrong and the
// arguments that are no flags. pflag stops at the first wrong one: values are therefore set here one by one, and after a
// flag that it does not know, it goes on with the rest.
func wrongFlags(fs *pflag.FlagSet, args []string) (wrong []*flagError, others []string) {
	set := func(flag *pflag.Flag, value string) error {
		if err := fs.Set(flag.Name, value); err != nil {
			wrong = append(wrong, explain(fs, err))
		}
		return nil
	}
	for {
		err := fs.ParseAll(args, set)
		others = append(others, fs.Args()...)
		if err == nil || errors.Is(err, pflag.ErrHelp) {
			return wrong, others
		}
		e := explain(fs, err)
		wrong = append(wrong, e)
		if args = behind(args, e.flag); args == nil {
			return wrong, others
		}
	}
}

// explain says what is wrong with the flag that an error of pflag is about, and what would be right.
func explain(fs *pflag.FlagSet, err error) *flagError {
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	var syntax *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &unknown):
		name := "--" + unknown.GetSpecifiedName()
		if group := unknown.GetSpecifiedShortnames(); group != "" {
			name = "-" + group
		}
		meant := similar(fs, name)
		advice := didYouMean(meant)
		if advice == "" {
			advice = "; --help lists those there are"
		}
		return &flagError{name, meant, "unknown flag: " + name + advice}
	case errors.As(err, &missing):
		name := "--" + missing.GetFlag().Name
		return &flagError{name, nil, fmt.Sprintf("%s has no value, expected %s", name, valueOf(missing.GetFlag()))}
	case errors.As(err, &invalid):
		name, cause := "--"+invalid.GetFlag().Name, invalid.Unwrap()
		// Its own words repeat the value and name a function of Go.
		if number := new(strconv.NumError); errors.As(cause, &number) {
			cause = number.Err
		}
		if reason := fmt.Sprint(cause); strings.HasPrefix(reason, "expected ") {
			return &flagError{name, nil, fmt.Sprintf("%s is %q, %s", name, invalid.GetValue(), reason)}
		}
		return &flagError{name, nil, fmt.Sprintf("%s is %q, expected %s: %v", name, invalid.GetValue(), valueOf(invalid.GetFlag()), cause)}
	case errors.As(err, &syntax):
		return &flagError{syntax.GetSpecifiedFlag(), nil, fmt.Sprintf("%s is no flag, expected --name=value", syntax.GetSpecifiedFlag())}
	}
	return &flagError{reason: err.Error()}
}

// valueOf names a flag's value as its help does.
func valueOf(flag *pflag.Flag) string {
	name, _ := pflag.UnquoteUsage(flag)
	return cmp.Or(name, flag.Value.Type())
}

// behind returns what follows the flag and, where it is an argument of its own, its value; nil if it is not there.
func behind(args []string, flag string) []string {
	for i, arg := range args {
		if name, _, inline := strings.Cut(arg, "="); arg == flag || name == flag {
			rest := args[i+1:]
			if !inline && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
				rest = rest[1:]
			}
			return append([]string{}, rest...)
		}
	}
	return nil
}

// similar returns the flags that differ from name by a slip or two, or by one if it is short.
func similar(fs *pflag.FlagSet, name string) []string {
	var names []string
	fs.VisitAll(func(flag *pflag.Flag) {
		if candidate := "--" + flag.Name; !flag.Hidden && distance(candidate, name) <= min(2, (len(name)-len("--"))/2) {
			names = append(names, candidate)
		}
	})
	return names
}

// distance is how many letters must be put in, taken out or replaced to make a into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
