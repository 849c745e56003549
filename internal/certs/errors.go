// SPDX-License-Identifier: Apache-2.0

package certs

import "fmt"

// InvalidError says that one input is wrong. Reason holds what was expected and what to do instead.
type InvalidError struct {
	Field  string // the option's name as certgen's flags spell it, such as "dns"
	Value  string
	Reason string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s %q: %s", e.Field, e.Value, e.Reason)
}

// Require returns an InvalidError for an option that is empty.
func Require(field, value, want string) error {
	if value != "" {
		return nil
	}
	return &InvalidError{field, "", "expected " + want}
}

// RefusedError says that the files found on disk forbid an operation. Nothing was changed.
type RefusedError struct {
	Path   string // the file or directory that is in the way
	Reason string // what was expected, what was found, what to do
	// OnlyNewCA says that with what is there a new CA is the only way to go on, which InitOptions.AllowNewCA allows.
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

// Flatten lists the single errors that errors.Join put together, in order, so that each can have its own line.
func Flatten(err error) []error {
	if err == nil {
		return nil
	}
	// Not errors.As: it would look through a wrapper and lose the wrapper's text.
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
