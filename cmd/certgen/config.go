// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cli"
)

// config is a YAML file that sets flags by name: "service: widgets", "dns: [a.example.com]". It
// is parsed with the flag definitions, so the file and the command line accept the same values.
type config struct {
	path  string
	lines map[string]int // by flag name, of the flags that the file sets
}

func addConfigFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", "",
		"YAML file with flags of certgen init, by their names. Flags on the command line take precedence.")
}

// readConfig sets the flags that the file contains, unless the command line sets them. It returns
// all problems together, with line numbers, as a usage error.
func readConfig(path string, sets ...*pflag.FlagSet) (*config, error) {
	flags := pflag.NewFlagSet("config", pflag.ContinueOnError)
	for _, set := range sets {
		flags.AddFlagSet(set)
	}
	c := &config{path: path, lines: map[string]int{}}
	if path == "" {
		return c, nil
	}
	fields, err := c.fields()
	if err != nil {
		return nil, err
	}
	var wrong []error
	problem := func(line int, format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("%s:%d: "+format, append([]any{path, line}, args...)...))
	}
	seen := map[string]int{}
	for pair := range slices.Chunk(fields, 2) {
		key, value := pair[0], pair[1]
		flag := flags.Lookup(key.Value)
		switch {
		case flag == nil:
			var names []string
			flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
			problem(key.Line, "unknown field %q, expected one of %s", key.Value, strings.Join(names, ", "))
		case seen[key.Value] > 0:
			problem(key.Line, "duplicate field %q, first in line %d", key.Value,
				seen[key.Value])
		case !flag.Changed: // the command line takes precedence
			c.lines[key.Value] = value.Line
			if err := set(flag, value); err != nil {
				problem(value.Line, "%s: %w", key.Value, err)
			}
		}
		seen[key.Value] = key.Line
	}
	if len(wrong) > 0 {
		return nil, cli.UsageError(wrong...)
	}
	return c, nil
}

// fields returns the keys and values of the file's single mapping, alternating.
func (c *config) fields() ([]*yaml.Node, error) {
	f, err := os.Open(c.path)
	if err != nil {
		return nil, cli.UsageErrorf("--config: %w", err)
	}
	defer f.Close()
	var document, more yaml.Node
	decoder := yaml.NewDecoder(f)
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, cli.UsageErrorf("%s: %w", c.path, err)
	}
	if root := document.Content[0]; root.Kind != yaml.MappingNode {
		return nil, cli.UsageErrorf("%s:%d: expected fields such as \"service: widgets\"", c.path, root.Line)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, cli.UsageErrorf("%s: expected one document, found more", c.path)
	}
	return document.Content[0].Content, nil
}

func set(flag *pflag.Flag, value *yaml.Node) error {
	if value.Kind == yaml.ScalarNode && value.Tag != "!!null" {
		return flag.Value.Set(value.Value)
	}
	list, ok := flag.Value.(*commaList)
	if !ok || value.Kind != yaml.SequenceNode {
		return errors.New("expected a value, found none or another kind")
	}
	texts := []string{}
	for _, v := range value.Content {
		if v.Kind != yaml.ScalarNode || v.Tag == "!!null" {
			return errors.New("expected a list of values")
		}
		texts = append(texts, v.Value)
	}
	*list = texts
	return nil
}

// locate adds the file and line to each validation error whose flag the file set.
func (c *config) locate(err error) error {
	var errs []error
	for _, e := range certs.Flatten(err) {
		if invalid, ok := errors.AsType[*certs.InvalidError](e); ok && c.lines[invalid.Field] > 0 {
			e = cli.UsageErrorf("%s:%d: %w", c.path, c.lines[invalid.Field], errors.New(e.Error()))
		}
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}
