// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// applied is what a manager applies: an engine w with the spec, if there is one.
func applied(spec string) string {
	if spec != "" {
		spec = `,"spec":` + spec
	}
	return `{"apiVersion":"<gv>","kind":"<kind>","metadata":{"name":"w"}` + spec + `}`
}

// apply applies as a manager to the engine w. More of the query may follow the manager's name.
func (w wire) apply(t *testing.T, manager, body string) reply {
	t.Helper()
	return w.send(t, http.MethodPatch, "/w?fieldManager="+manager, applyPatch, body)
}

// mustApply is apply that succeeds, with the code 200.
func (w wire) mustApply(t *testing.T, manager, body string) *unstructured.Unstructured {
	t.Helper()
	return w.must(t, http.StatusOK, http.MethodPatch, "/w?fieldManager="+manager, applyPatch, body)
}

// owners lists who owns what: by "MANAGER OPERATION" and "/SUBRESOURCE" if there is one, the paths in the order of the set.
func owners(t *testing.T, obj *unstructured.Unstructured) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, entry := range obj.GetManagedFields() {
		var set fieldpath.Set
		if err := set.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
			t.Fatal(err)
		}
		var paths []string
		set.Iterate(func(p fieldpath.Path) { paths = append(paths, strings.TrimPrefix(p.String(), ".")) })
		slices.Sort(paths)
		who := fmt.Sprintf("%s %s", entry.Manager, entry.Operation)
		if entry.Subresource != "" {
			who += "/" + entry.Subresource
		}
		all[who] = strings.Join(paths, " ")
	}
	return all
}

func checkOwners(t *testing.T, obj *unstructured.Unstructured, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, owners(t, obj)); diff != "" {
		t.Errorf("owners of fields (-want +got):\n%s", diff)
	}
}

const framePart = `spec.parts[name="frame"] spec.parts[name="frame"].material spec.parts[name="frame"].name`

// TestEngineApply: apply creates, then changes. A manager owns what it applied: neither defaults nor what the server sets;
// to apply the same again writes nothing.
func TestEngineApply(t *testing.T) {
	w := engineWire(t, adminConfig(t, shared), newNamespace(t, shared))
	spec := applied(`{"model":"m","parts":[{"name":"frame","material":"oak"}]}`)
	created := w.must(t, http.StatusCreated, http.MethodPatch, "/w?fieldManager=a", applyPatch, spec)
	if got, want := specOf(t, created), "m Standard 1/none, 1 oak frame"; got != want {
		t.Errorf("created: got %s, want %s", got, want)
	}
	checkOwners(t, created, map[string]string{"a Apply": "spec.model " + framePart})
	if diff := cmp.Diff(created, w.mustApply(t, "a", spec)); diff != "" {
		t.Errorf("applied again (-first +second):\n%s", diff)
	}

	// YAML, as people write it.
	changed := w.mustApply(t, "a", "apiVersion: <gv>\nkind: <kind>\nmetadata: {name: w, labels: {a: b}}\nspec:\n  model: m\n  replicas: 3\n")
	if got, want := specOf(t, changed), "m Standard 3/none"; got != want || changed.GetGeneration() != 2 {
		t.Errorf("changed: got %s, generation %d; want %s, 2", got, changed.GetGeneration(), want)
	}
	checkOwners(t, changed, map[string]string{"a Apply": "metadata.labels.a spec.model spec.replicas"})
	if changed.GetUID() != created.GetUID() {
		t.Errorf("uid after apply: got %s, want %s", changed.GetUID(), created.GetUID())
	}
}

// TestEngineApplyNeedsCreate: an apply that would create needs the right to create besides that to patch.
func TestEngineApplyNeedsCreate(t *testing.T) {
	namespace := newNamespace(t, shared)
	w := engineWire(t, engineUser(t, namespace, "patcher", "patch"), namespace)
	body := applied(`{"model":"m"}`)
	want := `403 Forbidden: <resource> "w" is forbidden: User "patcher" cannot create resource "<plural>" in API group "<group>" in the namespace "<namespace>" (<group> <plural> w)`
	if got := w.apply(t, "a", body).String(); got != want {
		t.Errorf("apply of what is not there by who may patch:\ngot  %s\nwant %s", got, want)
	}
	admin := engineWire(t, adminConfig(t, shared), namespace)
	admin.gone(t)
	admin.must(t, http.StatusCreated, http.MethodPost, "", jsonType, body)
	w.mustApply(t, "a", body)

	both := engineWire(t, engineUser(t, namespace, "creator", "patch", "create"), namespace)
	admin.must(t, http.StatusOK, http.MethodDelete, "/w", "", "")
	if got := both.apply(t, "a", body).String(); got != "201 <kind>" {
		t.Errorf("apply of what is not there by who may patch and create: got %s, want 201", got)
	}
}

// TestEngineApplyGivingUp: a field stays as long as one manager owns it, and when none does it gets its default again.
func TestEngineApplyGivingUp(t *testing.T) {
	w := engineWire(t, adminConfig(t, shared), newNamespace(t, shared))
	w.must(t, http.StatusCreated, http.MethodPatch, "/w?fieldManager=a", applyPatch, applied(`{"model":"m","grade":"Premium","replicas":2}`))
	for _, step := range []struct{ name, manager, spec, want, a, b string }{
		{"b applies the same", "b", `{"grade":"Premium","replicas":2}`, "m Premium 2/none", "spec.grade spec.model spec.replicas", "spec.grade spec.replicas"},
		{"a gives up the grade", "a", `{"model":"m","replicas":2}`, "m Premium 2/none", "spec.model spec.replicas", "spec.grade spec.replicas"},
		{"b gives up the grade", "b", `{"replicas":2}`, "m Standard 2/none", "spec.model spec.replicas", "spec.replicas"},
		{"b gives up all", "b", ``, "m Standard 2/none", "spec.model spec.replicas", ""},
	} {
		t.Run(step.name, func(t *testing.T) {
			got := w.mustApply(t, step.manager, applied(step.spec))
			if spec := specOf(t, got); spec != step.want {
				t.Errorf("got  %s\nwant %s", spec, step.want)
			}
			want := map[string]string{"a Apply": step.a}
			if step.b != "" {
				want["b Apply"] = step.b
			}
			checkOwners(t, got, want)
		})
	}
}

// TestEngineApplyParts: each manager has its own parts in the list, and fields of a part can have different owners. A
// manager removes a part by leaving it out, unless another owns it too.
func TestEngineApplyParts(t *testing.T) {
	w := engineWire(t, adminConfig(t, shared), newNamespace(t, shared))
	w.must(t, http.StatusCreated, http.MethodPatch, "/w?fieldManager=a", applyPatch, applied(`{"model":"m","parts":[{"name":"frame","material":"oak"},{"name":"dial"}]}`))
	const dial, screw = ` spec.parts[name="dial"] spec.parts[name="dial"].name`, `spec.parts[name="screw"] spec.parts[name="screw"].name`
	const quantity = `spec.parts[name="frame"] spec.parts[name="frame"].name spec.parts[name="frame"].quantity`
	for _, step := range []struct{ name, manager, spec, want, a, b string }{
		{"b adds a part", "b", `{"parts":[{"name":"screw"}]}`, "m Standard 1/none, 1 oak frame, 1 dial, 1 screw",
			"spec.model" + dial + " " + framePart, screw},
		{"b has a field of a's part", "b", `{"parts":[{"name":"screw"},{"name":"frame","quantity":1}]}`, "m Standard 1/none, 1 dial, 1 screw, 1 oak frame",
			"spec.model" + dial + " " + framePart, quantity + " " + screw},
		{"a leaves out its part", "a", `{"model":"m","parts":[{"name":"frame","material":"oak"}]}`, "m Standard 1/none, 1 screw, 1 oak frame",
			"spec.model " + framePart, quantity + " " + screw},
		{"a leaves out a common part", "a", `{"model":"m"}`, "m Standard 1/none, 1 screw, 1 frame", "spec.model", quantity + " " + screw},
		{"b leaves out all", "b", ``, "m Standard 1/none", "spec.model", ""},
	} {
		t.Run(step.name, func(t *testing.T) {
			got := w.mustApply(t, step.manager, applied(step.spec))
			if spec := specOf(t, got); spec != step.want {
				t.Errorf("got  %s\nwant %s", spec, step.want)
			}
			want := map[string]string{"a Apply": step.a}
			if step.b != "" {
				want["b Apply"] = step.b
			}
			checkOwners(t, got, want)
		})
	}
}
