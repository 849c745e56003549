// SPDX-License-Identifier: Apache-2.0

package queryoptions_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"example.com/extension-apiserver/internal/queryoptions"
)

type options struct {
	metav1.TypeMeta `json:",inline"`

	Follow    bool         `json:"follow,omitempty"`
	Pod       string       `json:"pod,omitempty"`
	Lines     *int64       `json:"lines,omitempty"`
	Port      int32        `json:"port,omitempty"`
	Since     *metav1.Time `json:"since,omitempty"`
	Container []string     `json:"container,omitempty"`
	Ignored   string       `json:"-"`
}

// DeepCopyObject implements runtime.Object.
func (o *options) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}

type nested struct {
	options
	Selector metav1.LabelSelector `json:"selector"`
}

// TestAddConversion checks that options are read from a query, and that an invalid parameter
// causes an error with its name.
func TestAddConversion(t *testing.T) {
	scheme := runtime.NewScheme()
	gv := schema.GroupVersion{Group: "g.example.com", Version: "v1"}
	scheme.AddKnownTypes(gv, &options{})
	if err := queryoptions.AddConversion(scheme, &options{}); err != nil {
		t.Fatal(err)
	}
	noon := metav1.NewTime(time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC))
	for _, test := range []struct {
		query string
		want  options
		err   string
	}{
		{"", options{}, ""},
		{"follow", options{Follow: true}, ""},
		{"follow=true", options{Follow: true}, ""},
		{"follow=false", options{}, ""},
		{"follow=sometimes", options{}, "follow"},
		{"pod=a&pod=b", options{Pod: "a"}, ""},
		{"container=a&container=b", options{Container: []string{"a", "b"}}, ""},
		{"lines=-3", options{Lines: ptr.To[int64](-3)}, ""},
		{"lines=", options{}, "lines"},
		{"lines=9223372036854775808", options{}, "lines"},
		{"port=2147483648", options{}, "port"},
		{"since=2026-01-02T12:00:00Z", options{Since: &noon}, ""},
		{"since=noon", options{}, "since"},
		{"Ignored=a&-=b&other=c", options{}, ""},
	} {
		query, err := url.ParseQuery(test.query)
		if err != nil {
			t.Fatal(err)
		}
		var got options
		err = scheme.Convert(&query, &got, nil)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), "query parameter "+test.err+": ") {
				t.Errorf("%s: error %v, want one of the query parameter %s", test.query, err, test.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.query, err)
		} else if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.query, diff)
		}
	}
}

// TestCheck checks that the error names a field that a query cannot set.
func TestCheck(t *testing.T) {
	if err := queryoptions.Check(&options{}); err != nil {
		t.Error(err)
	}
	if err := queryoptions.Check(&nested{}); err == nil || !strings.Contains(err.Error(), "options") {
		t.Errorf("error %v, want one of the embedded struct", err)
	}
}
