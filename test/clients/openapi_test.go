// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// document returns the OpenAPI document of a group and version, as kube-apiserver serves it to
// every user.
func document(t *testing.T, groupVersion string) string {
	t.Helper()
	config, err := shared.Config("reader")
	if err != nil {
		t.Fatal(err)
	}
	return string(envtest.NewEndpoint(t, config).Get(t, "/openapi/v3/apis/"+groupVersion, nil).Body)
}

// TestOpenAPI checks that the documents of the API satisfy the lint rules of
// testdata/js/lint.mjs, like a document of kube-apiserver itself, and that invalid documents
// violate them.
func TestOpenAPI(t *testing.T) {
	dir := scriptDir(t)
	ours := document(t, install.GroupVersions()[0].String())
	files := map[string]string{
		"apps.json":      document(t, "apps/v1"),
		"reference.json": strings.Replace(ours, `"com.example.workshop.v1.WidgetSpec":{`, `"Other":{`, 1),
		"structure.json": strings.Replace(ours, `"type":"object"`, `"type":"thing"`, 1),
		"operation.json": regexp.MustCompile(`"operationId":"[^"]+"`).ReplaceAllString(ours, `"operationId":"same"`),
		"required.json":  strings.Replace(ours, `"required":["model"]`, `"required":["modell"]`, 1),
	}
	for _, gv := range install.GroupVersions() {
		files[gv.Version+".json"] = document(t, gv.String())
	}
	command := []string{"node", "lint.mjs"}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		command = append(command, name)
	}
	out, err := inDir(t, dir, "", command...)
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	var broken []string
	for _, m := range regexp.MustCompile(`(?m)^\S+\.json [a-zA-Z0-9-]+:`).FindAllString(out, -1) {
		broken = append(broken, strings.TrimSuffix(m, ":"))
	}
	slices.Sort(broken)
	if diff := cmp.Diff([]string{
		"operation.json operation-operationId-unique",
		"reference.json no-unresolved-refs", "reference.json no-unused-components",
		"required.json no-required-schema-properties-undefined",
		"structure.json struct",
	}, slices.Compact(broken)); diff != "" {
		t.Errorf("broken rules (-want +got):\n%s\n%s", diff, out)
	}
}
