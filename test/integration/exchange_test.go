// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// exchange is a request and the answer to it, in words; an ellipsis in it stands for any text.
type exchange struct {
	name, method, path, contentType, body, want string
}

// Answers that many requests get.
const (
	outdated = `409 Conflict: Operation cannot be fulfilled on <resource> "w": the object has been modified; ` +
		`please apply your changes to the latest version and try again (<group> <plural> w)`
	missing     = `404 NotFound: <resource> "x" not found (<group> <plural> x)`
	wrongPlace  = `400 BadRequest: the namespace of the provided object does not match the namespace sent on the request`
	invalidName = `422 Invalid: <groupKind> "" is invalid: metadata.name: Required value: name or generateName is required (<group> <kind>) ` +
		`[metadata.name: FieldValueRequired]`
)

// check sends the request about every resource. All must give the same answer.
func (x exchange) check(t *testing.T, wires map[string]wire) {
	t.Helper()
	t.Run(x.name, func(t *testing.T) {
		want := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(x.want), "…", "(?s:.*)") + "$")
		codes := map[int]string{}
		for name, w := range wires {
			r := w.send(t, x.method, x.path, x.contentType, x.body)
			codes[r.code] = name
			if got := r.String(); !want.MatchString(got) {
				t.Errorf("%s: %s %s\ngot  %s\nwant %s", name, x.method, x.path, got, x.want)
			}
		}
		if len(codes) > 1 {
			t.Errorf("different codes: %v", codes)
		}
	})
}

// unchanged returns a check that nothing was written since: the collections have the same objects in the same state.
func unchanged(t *testing.T, wires map[string]wire) func() {
	t.Helper()
	state := func() map[string]string {
		states := map[string]string{}
		for name, w := range wires {
			list, err := w.must(t, http.StatusOK, http.MethodGet, "", "", "").ToList()
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range list.Items {
				states[name] += fmt.Sprintf("%s %s at %s\n", item.GetUID(), item.GetName(), item.GetResourceVersion())
			}
		}
		return states
	}
	before := state()
	return func() {
		t.Helper()
		if after := state(); !maps.Equal(before, after) {
			t.Errorf("something was written: before %s\nafter %s", before, after)
		}
	}
}
