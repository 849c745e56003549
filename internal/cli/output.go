// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Format is the format in which a command prints its result. It implements pflag.Value.
type Format string

// The formats. Text is the default of AddOutputFlag.
const (
	Text Format = "text"
	JSON Format = "json"
)

var formats = []string{string(Text), string(JSON)}

// AddOutputFlag adds --output and -o, and their completion, to a command and its subcommands.
func AddOutputFlag(cmd *cobra.Command, f *Format) {
	*f = Text
	cmd.PersistentFlags().VarP(f, "output", "o", "Output format. One of: "+strings.Join(formats, ", ")+".")
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

func (f *Format) String() string { return string(*f) }

// Set implements pflag.Value. It returns an error for any other format.
func (f *Format) Set(value string) error {
	if !slices.Contains(formats, value) {
		return fmt.Errorf("expected %s", strings.Join(formats, " or "))
	}
	*f = Format(value)
	return nil
}

// Type implements pflag.Value.
func (*Format) Type() string { return "string" }

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
