// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestEngineExplain: kubectl explain shows every field with its type and what is allowed, from the OpenAPI document of our
// server, and says what it is for.
func TestEngineExplain(t *testing.T) {
	explain := func(args ...string) string {
		t.Helper()
		stdout, stderr, err := envtest.Kubectl{}.Run(t.Context(), shared, append([]string{"explain"}, args...)...)
		if err != nil {
			t.Fatalf("kubectl explain %s: %v\n%s", strings.Join(args, " "), err, stderr)
		}
		return stdout
	}
	gv := engineCase.resource.GroupVersion()
	tree := explain("engines", "--recursive", "--api-version="+gv.String())
	if head := "GROUP:      " + gv.Group + "\nKIND:       Engine\nVERSION:    " + gv.Version + "\n\nDESCRIPTION:\n    "; !strings.HasPrefix(tree, head) {
		t.Errorf("kubectl explain engines: want it to begin with %q, got:\n%s", head, tree)
	}
	// What metadata has is Kubernetes' own.
	fields := regexp.MustCompile(`(?ms)^FIELDS:\n(.*?metadata\t<ObjectMeta>\n).*?^(  spec\t.*)`).FindStringSubmatch(tree)
	if fields == nil {
		t.Fatalf("kubectl explain engines --recursive has no fields metadata and spec:\n%s", tree)
	}
	if diff := cmp.Diff(strings.Split(engineFields, "\n"), strings.Split(strings.TrimSpace(fields[1]+fields[2]), "\n")); diff != "" {
		t.Errorf("fields (-want +kubectl explain):\n%s", diff)
	}
	for _, tc := range []struct{ field, want string }{
		{"engine.spec", `FIELD: spec <EngineSpec>.*spec is the desired state\..*  model\t<string> -required-\n    model names the design that the engine is built to`},
		{"engine.spec.grade", `FIELD: grade <string>\nENUM:\n    Economy\n    Premium\n    Standard\n.*grade is one of Economy, Standard, Premium\. Default: Standard\.`},
		{"eng.spec.parts.name", `FIELD: name <string>.*name identifies the part within the engine`},
		{"engines.status.conditions.reason", `FIELD: reason <string>.*reason contains a programmatic identifier`},
	} {
		if got := explain(tc.field); !regexp.MustCompile(`(?s)` + tc.want).MatchString(got) {
			t.Errorf("kubectl explain %s: want %s, got:\n%s", tc.field, tc.want, got)
		}
	}
}

// engineFields is what kubectl explain --recursive shows of the preferred version, but for what is in metadata.
const engineFields = `apiVersion	<string>
  kind	<string>
  metadata	<ObjectMeta>
  spec	<EngineSpec> -required-
    grade	<string>
    enum: Economy, Premium, Standard
    maxReplicas	<integer>
    model	<string> -required-
    parts	<[]EnginePart>
      material	<string>
      name	<string> -required-
      quantity	<integer>
    replicas	<integer>
  status	<EngineStatus>
    conditions	<[]Condition>
      lastTransitionTime	<string> -required-
      message	<string> -required-
      observedGeneration	<integer>
      reason	<string> -required-
      status	<string> -required-
      type	<string> -required-
    observedGeneration	<integer>
    readyReplicas	<integer>
    replicas	<integer>
    selector	<string>`
