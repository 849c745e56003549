// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestJSON checks that a patch is rejected if its operations may move too many elements.
func TestJSON(t *testing.T) {
	list := func(n int) string { return `{"op":"add","path":"/x","value":[` + strings.Repeat("0,", n-1) + `0]}` }
	text := func(n int) string { return `{"op":"add","path":"/x","value":"\"` + strings.Repeat(",", n) + `"}` }
	at := func(n int, op, index string) string {
		return strings.Repeat(fmt.Sprintf(`,{"op":%q,"path":"/x/%s","value":1,"from":"/x"}`, op, index), n)
	}
	inserts := func(n int) string { return at(n, "add", "0") }
	for name, tc := range map[string]struct {
		patch   string
		refused bool
	}{
		"no JSON":             {"[", false},
		"no list":             {"{}", false},
		"a long list":         {list(1_000_000), false},
		"many insertions":     {"[" + list(10) + inserts(4000) + "]", false},
		"too many insertions": {"[" + list(10) + inserts(9000) + "]", true},
		"from the end":        {"[" + list(10) + at(9000, "add", "-1") + "]", true},
		"many copies":         {"[" + list(10) + at(9000, "copy", "+5") + "]", true},
		"many at the end":     {"[" + list(10) + at(9000, "add", "-") + "]", false},
		"many replacements":   {"[" + list(10) + at(9000, "replace", "0") + "]", false},
		"a text with commas":  {"[" + text(1_000_000) + inserts(4000) + "]", false},
		"both":                {"[" + list(1_000_000) + inserts(9000) + "]", true},
		"both, in the middle": {"[" + list(1) + inserts(4000) + "," + list(1_000_000) + inserts(4000) + "]", true},
		"under another key": {`[{"op":"add","path":"/x","value":0,"VALUE":[` + strings.Repeat("0,", 1_000_000) +
			`0]}` + inserts(9000) + "]", true},
		"owners": {`[{"op":"add","path":"/metadata/ownerReferences","value":[` +
			strings.Repeat("{},", 499) + `{}]}]`, false},
		"many owners": {`[{"op":"add","path":"/metadata/ownerReferences","value":[` +
			strings.Repeat("{},", 501) + `{}]}]`, true},
		"owners, one by one": {`[` + strings.Repeat(`{"op":"add","path":"/metadata/ownerReferences/-","value":{}},`,
			501) + `{"op":"remove","path":"/x"}]`, true},
		"within another value": {`[{"op":"add","path":"/x","value":{"a\\":{"b":"\\\"","c":[` +
			strings.Repeat("0,", 1_000_000) + `0]}}}` + inserts(9000) + "]", true},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := JSON([]byte(tc.patch)); apierrors.IsRequestEntityTooLargeError(err) != tc.refused ||
				(err != nil) != tc.refused {
				t.Errorf("got %v, want a refusal: %t", err, tc.refused)
			}
		})
	}
	if _, err := JSON(fmt.Appendf(nil, "[%s%s]", list(1_000_000), inserts(20))); err == nil ||
		!strings.Contains(err.Error(),
			"the 21 operations of a JSON patch, 20 of them insertions, with up to 1000000 elements") {
		t.Errorf("got %v, want all numbers", err)
	}
}
