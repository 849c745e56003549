// SPDX-License-Identifier: Apache-2.0

// Package output is the flag --output and what it decides: a result as text or as JSON.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/usage"
)

// Format is how a result is printed.
type Format string

// The formats. Text is the default.
const (
	Text Format = "text"
	JSON Format = "json"
)

var formats = []string{string(Text), string(JSON)}

// AddFlag adds --output and -o, and their completion, to a command and those below it.
func AddFlag(cmd *cobra.Command, f *Format) {
	cmd.PersistentFlags().StringVarP((*string)(f), "output", "o", string(Text), "format of the result: "+strings.Join(formats, " or "))
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// Validate returns a *usage.Error for any other format. The flag itself takes them, so that a command says this together with
// what else is wrong.
func (f Format) Validate() error {
	if slices.Contains(formats, string(f)) {
		return nil
	}
	return usage.Errorf("--output is %q, expected %s", f, strings.Join(formats, " or "))
}

// Print writes result as indented JSON, or as text with the given function.
func (f Format) Print(w io.Writer, result any, text func(io.Writer)) error {
	if f == Text {
		text(w)
		return nil
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(result); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}
