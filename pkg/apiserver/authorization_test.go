// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
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

// TestUncached checks that decisions about long attributes and about users with many groups are not
// cached, and that the reviews are complete.
func TestUncached(t *testing.T) {
	of := func(groups int, name, path string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "a", Groups: slices.Repeat([]string{
			"0123456789"}, groups)}, Verb: "get", Name: name, Path: path, ResourceRequest: path == ""}
	}
	for name, tc := range map[string]struct {
		attributes authorizer.AttributesRecord
		cached     bool
	}{
		"short":                {of(1, "w", ""), true},
		"long":                 {of(1, strings.Repeat("x", 9_000), ""), true},
		"short with escapes":   {of(1, strings.Repeat("<", 1_000), ""), true},
		"long with escapes":    {of(1, strings.Repeat("<", 9_000), ""), false},
		"long path":            {of(1, "", "/"+strings.Repeat("\x01", 9_000)), false},
		"many groups":          {of(1_000, "w", ""), false},
		"many groups, no kind": {of(1_000, "", "/livez"), false},
	} {
		t.Run(name, func(t *testing.T) {
			kept := tc.attributes
			reviews := []authorizationv1.SubjectAccessReviewSpec{}
			kube := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				var review authorizationv1.SubjectAccessReview
				if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
					t.Error(err)
				}
				reviews = append(reviews, review.Spec)
				review.Status.Allowed = true
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(review)
			}))
			defer kube.Close()
			client, err := authorizationclient.NewForConfig(&rest.Config{Host: kube.URL})
			if err != nil {
				t.Fatal(err)
			}
			next, err := authorizerfactory.DelegatingAuthorizerConfig{SubjectAccessReviewClient: client,
				AllowCacheTTL: time.Hour, DenyCacheTTL: time.Hour, WebhookRetryBackoff: &wait.Backoff{Steps: 1}}.New()
			if err != nil {
				t.Fatal(err)
			}
			delegated := newDelegatedAuthorizer(next, func() {})
			for range 2 {
				if decision, _, err := delegated.Authorize(t.Context(), tc.attributes); decision != authorizer.DecisionAllow {
					t.Fatalf("got %v, %v, want it allowed", decision, err)
				}
			}
			if cached := len(reviews) == 1; cached != tc.cached {
				t.Errorf("got %d reviews, want the decision cached: %t", len(reviews), tc.cached)
			}
			review := reviews[0]
			got := ""
			if review.ResourceAttributes != nil {
				got = review.ResourceAttributes.Name
			} else {
				got = review.NonResourceAttributes.Path
			}
			if got != kept.Name+kept.Path || len(review.Groups) != len(kept.User.GetGroups()) {
				t.Errorf("the review has the name or path %.20q and %d groups, want those of the request", got,
					len(review.Groups))
			}
		})
	}
}
