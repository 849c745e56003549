// SPDX-License-Identifier: Apache-2.0

package certs

import "fmt"

// InvalidError reports one invalid input. Reason states the expected value and a remedy.
type InvalidError struct {
	Field  string // the option's name as in certgen's flags, such as "dns"
	Value  string
	Reason string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s %q: %s", e.Field, e.Value, e.Reason)
}

// Require returns an *InvalidError if value is empty, otherwise nil.
func Require(field, value, want string) error {
	if value != "" {
		return nil
	}
	return &InvalidError{field, "", "expected " + want}
}

// RefusedError reports that the files on disk prevent an operation. Nothing was changed.
type RefusedError struct {
	Path   string // the file or directory that prevents the operation
	Reason string // what was expected, what was found, and a remedy
	// OnlyNewCA reports that only a new CA allows the operation to continue.
	// InitOptions.AllowNewCA permits that.
	OnlyNewCA bool
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%s: %s", e.Path, e.Reason)
	if e.OnlyNewCA {
		text += "; restore it from a backup, or allow a new CA with --allow-new-ca; all clients that trust the old " +
			"CA then need the new one"
	}
	return text
}

// Flatten returns the individual errors in a tree of errors joined by errors.Join, in order, so
// that callers can print one per line.
func Flatten(err error) []error {
	if err == nil {
		return nil
	}
	// Do not use errors.As: it would look inside a wrapper and lose the wrapper's text.
	joined, ok := any(err).(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, Flatten(e)...)
	}
	return all
}
