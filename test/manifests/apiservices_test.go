// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/registration"
	"example.com/extension-apiserver/sample/install"
	"example.com/extension-apiserver/test/env"
)

var update = flag.Bool("update", false, "write manifests/base/apiservices.yaml anew")

// TestAPIServices: the file is what extension-apiserver apiservices prints, without the caBundle.
func TestAPIServices(t *testing.T) {
	var want strings.Builder
	want.WriteString("# Generated: extension-apiserver apiservices, without the caBundle, which a component for certificates fills in.\n" +
		"# go test ./test/manifests -run TestAPIServices -update writes it anew.\n")
	for _, a := range registration.APIServices(install.GroupVersions(), registration.Backend{Namespace: env.Namespace, Name: env.ServiceName}) {
		out, err := yaml.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		want.WriteString("---\n" + string(out))
	}
	file := filepath.Join(folder, "base", "apiservices.yaml")
	if *update {
		if err := os.WriteFile(file, []byte(want.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want.String(), readFile(t, file)); diff != "" {
		t.Errorf("%s (-want +got); write it anew with -update:\n%s", file, diff)
	}
}
