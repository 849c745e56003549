// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"go/parser"
	"testing"
)

// TestStorageAlias: the kind of an element of Kinds is found in each form.
func TestStorageAlias(t *testing.T) {
	for text, want := range map[string]string{
		"backuprun.Kind.NewStorage":                 "backuprun",
		"backuprun.NewStorage":                      "backuprun",
		"registry.NewStorage(backuprun.NewStorage)": "backuprun",
		"func(s *runtime.Scheme, o generic.RESTOptionsGetter, a authorizer.Authorizer) (map[string]rest.Storage, error) { " +
			"return backuprun.Kind.NewStorage(s, o, a) }": "backuprun",
		"newStorage":                  "",
		"func() error { return nil }": "",
	} {
		e, err := parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := storageAlias(e); got != want || ok != (want != "") {
			t.Errorf("%s: got %q, %t, want %q", text, got, ok, want)
		}
	}
}
