// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// TestLongSelectors: the SubjectAccessReview for a request with long selectors has no selectors.
func TestLongSelectors(t *testing.T) {
	numbers := make([]string, 300)
	for i := range numbers {
		numbers[i] = strconv.Itoa(i)
	}
	for name, tc := range map[string]struct {
		labels, fields string
		asked          bool // whether the review has the selectors
	}{
		"none": {asked: true},
		"short": {labels: "app=shop,tier in (a,b),!old",
			fields: "metadata.name=a,spec.nodeName!=b", asked: true},
		"many keys":    {labels: strings.TrimSuffix(strings.Repeat("a,", 30), ",")},
		"many values":  {labels: "a in (" + strings.Join(numbers, ",") + ")"},
		"many fields":  {fields: strings.TrimSuffix(strings.Repeat("a!=b,", 30), ",")},
		"a long value": {fields: "metadata.name=" + strings.Repeat("a", maxSelectors)},
		"half labels, fields": {labels: strings.TrimSuffix(strings.Repeat("a,", 15), ","),
			fields: strings.TrimSuffix(strings.Repeat("a!=b,", 15), ",")},
	} {
		t.Run(name, func(t *testing.T) {
			labelSelector, err := labels.ParseToRequirements(tc.labels)
			if err != nil {
				t.Fatal(err)
			}
			fieldSelector, err := fields.ParseSelector(tc.fields)
			if err != nil {
				t.Fatal(err)
			}
			sent := authorizer.AttributesRecord{
				User: &user.DefaultInfo{Name: "ann"}, Verb: "list", Namespace: "n", APIGroup: "g", APIVersion: "v1",
				Resource: "widgets", Subresource: "s",
				Name: "w", ResourceRequest: true, Path: "/apis/g/v1/namespaces/n/widgets/w/s",
				LabelSelectorRequirements: labelSelector, FieldSelectorRequirements: fieldSelector.Requirements(),
			}
			var asked authorizer.Attributes
			d := newDelegatedAuthorizer(authorizer.AuthorizerFunc(
				func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
					asked = a
					return authorizer.DecisionAllow, "", nil
				}), func() {})
			if _, _, err := d.Authorize(t.Context(), sent); err != nil {
				t.Fatal(err)
			}
			want := sent
			if !tc.asked {
				want.LabelSelectorRequirements, want.FieldSelectorRequirements = nil, nil
			}
			if !reflect.DeepEqual(asked, authorizer.Attributes(want)) {
				t.Errorf("asked about %v, want %v", asked, want)
			}
		})
	}
}

// TestLongAttributes: attributes that are too long only as JSON, which the library would cache,
// are not authorized.
func TestLongAttributes(t *testing.T) {
	for path, want := range map[string]bool{
		strings.Repeat("x", 9_000): false, strings.Repeat("<", 1_000): false, strings.Repeat("<", 9_000): true,
		strings.Repeat("\x01", 9_000): true, strings.Repeat("<", 20_000): false, // the last is not cached
	} {
		if got := isTooLong(authorizer.AttributesRecord{Path: path}); got != want {
			t.Errorf("%d times %q: got %t, want %t", len(path), path[0], got, want)
		}
	}
}
