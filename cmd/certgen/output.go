// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/pkg/certs"
)

var formats = []string{"text", "json"}

// addOutputFlag adds -o and its completion.
func addOutputFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", formats[0], "format of the result: text or json")
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

func checkFormat(format string) error {
	if slices.Contains(formats, format) {
		return nil
	}
	return &certs.InvalidError{Field: "output", Value: format, Reason: "expected text or json"}
}

// printResult writes result as JSON, or as text with the given function.
func printResult(w io.Writer, format string, result any, text func(io.Writer)) error {
	if format == "text" {
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
