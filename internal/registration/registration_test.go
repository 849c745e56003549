// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
)

var backend = Backend{Namespace: "demo", Name: "api", CABundle: []byte("PEM")}

// versions are the versions of an API, the preferred one first.
var versions = []schema.GroupVersion{{Group: "demo.example.com", Version: "v1"},
	{Group: "demo.example.com", Version: "v1test2"}, {Group: "demo.example.com", Version: "v1test1"}}

// TestAPIServices checks that there is one APIService for each version, in the order of the list,
// and that each has a CA.
func TestAPIServices(t *testing.T) {
	services := APIServices(versions, backend)
	if len(services) != len(versions) {
		t.Fatalf("got %d APIServices, want %d, one for each version", len(services), len(versions))
	}
	var last int32
	for i, s := range services {
		gv := versions[i]
		if want := gv.Version + "." + gv.Group; s.Name != want || s.Spec.Version != gv.Version ||
			s.Spec.Group != gv.Group {
			t.Errorf("APIService %d: got %s of %s/%s, want %s", i, s.Name, s.Spec.Group, s.Spec.Version, want)
		}
		if s.Kind != "APIService" || s.APIVersion != "apiregistration.k8s.io/v1" {
			t.Errorf("%s: got type %s %s, want apiregistration.k8s.io/v1 APIService: it is printed as YAML", s.Name,
				s.APIVersion, s.Kind)
		}
		if string(s.Spec.CABundle) != "PEM" {
			t.Errorf("%s: got caBundle %q, want that of the backend", s.Name, s.Spec.CABundle)
		}
		if s.Spec.InsecureSkipTLSVerify {
			t.Errorf("%s: got insecureSkipTLSVerify, want a verified connection", s.Name)
		}
		if s.Spec.GroupPriorityMinimum != 1000 {
			t.Errorf("%s: got groupPriorityMinimum %d, want 1000, below every built-in group", s.Name,
				s.Spec.GroupPriorityMinimum)
		}
		if s.Spec.VersionPriority <= 0 || i > 0 && s.Spec.VersionPriority >= last {
			t.Errorf("%s: got versionPriority %d after %d, want positive and descending", s.Name,
				s.Spec.VersionPriority, last)
		}
		last = s.Spec.VersionPriority
	}
}

func TestBackend(t *testing.T) {
	for _, tc := range []struct{ have, want int32 }{{0, 443}, {6443, 6443}} {
		b := backend
		b.Port = tc.have
		got := APIServices(versions, b)[0].Spec.Service
		want := &apiregistrationv1.ServiceReference{Namespace: "demo", Name: "api", Port: &tc.want}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Service with port %d (-want +got):\n%s", tc.have, diff)
		}
	}
}

// TestApply checks that Apply creates missing APIServices, and corrects existing ones without
// changing what others wrote.
func TestApply(t *testing.T) {
	services := APIServices(versions, backend)
	there := services[0].DeepCopy()
	there.Labels = map[string]string{"owner": "them"}
	there.Spec.CABundle, there.Spec.InsecureSkipTLSVerify = nil, true
	client := fake.NewSimpleClientset(there).ApiregistrationV1().APIServices()
	if err := Apply(t.Context(), client, services); err != nil {
		t.Fatal(err)
	}
	for i, want := range services {
		got, err := client.Get(t.Context(), want.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
			t.Errorf("spec of %s (-want +got):\n%s", want.Name, diff)
		}
		if i == 0 && got.Labels["owner"] != "them" {
			t.Errorf("labels of %s: got %v, want those that were there", want.Name, got.Labels)
		}
	}
}

func TestAvailable(t *testing.T) {
	services := APIServices(versions, backend)[:1]
	name := services[0].Name
	condition := func(status apiregistrationv1.ConditionStatus) []apiregistrationv1.APIServiceCondition {
		return []apiregistrationv1.APIServiceCondition{
			{Type: "Other", Status: apiregistrationv1.ConditionFalse},
			{Type: apiregistrationv1.Available, Status: status, Reason: "FailedDiscoveryCheck", Message: "no route"},
		}
	}
	for _, tc := range []struct {
		name       string
		registered bool
		conditions []apiregistrationv1.APIServiceCondition
		want       string
	}{
		{"available", true, condition(apiregistrationv1.ConditionTrue), ""},
		{"not available", true, condition(apiregistrationv1.ConditionFalse), "APIService " + name +
			" is not available: False (FailedDiscoveryCheck) no route"},
		{"unknown", true, condition(apiregistrationv1.ConditionUnknown), "APIService " + name +
			" is not available: Unknown (FailedDiscoveryCheck) no route"},
		{"no condition", true, nil, "APIService " + name + " is not available: no condition Available yet"},
		{"not registered", false, nil, "get APIService " + name + ": "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := fake.NewSimpleClientset()
			if tc.registered {
				s := services[0].DeepCopy()
				s.Status.Conditions = tc.conditions
				client = fake.NewSimpleClientset(s)
			}
			wantError(t, CheckAvailable(t.Context(), client.ApiregistrationV1().APIServices(), services), tc.want)
		})
	}
}

// aggregated is a response of kube-apiserver's aggregated discovery.
type aggregated struct {
	discovery.AggregatedDiscoveryInterface
	resources map[schema.GroupVersion]*metav1.APIResourceList
	failed    map[schema.GroupVersion]error
	err       error
}

func (a aggregated) GroupsAndMaybeResources() (*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList,
	map[schema.GroupVersion]error, error) {
	return nil, a.resources, a.failed, a.err
}

func TestDiscovered(t *testing.T) {
	all := func(change func(
		map[schema.GroupVersion]*metav1.APIResourceList)) map[schema.GroupVersion]*metav1.APIResourceList {
		resources := map[schema.GroupVersion]*metav1.APIResourceList{}
		for _, gv := range versions {
			resources[gv] = &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "things"}}}
		}
		if change != nil {
			change(resources)
		}
		return resources
	}
	last := versions[2]
	for _, tc := range []struct {
		name     string
		response aggregated
		want     string
	}{
		{"all", aggregated{resources: all(nil)}, ""},
		{"one missing", aggregated{resources: all(func(r map[schema.GroupVersion]*metav1.APIResourceList) {
			delete(r, last)
		})},
			fmt.Sprintf("discovery does not list %s yet", last)},
		{"one empty", aggregated{resources: all(
			func(r map[schema.GroupVersion]*metav1.APIResourceList) { r[last].APIResources = nil })},
			fmt.Sprintf("discovery does not list %s yet", last)},
		{"one stale", aggregated{resources: all(nil),
			failed: map[schema.GroupVersion]error{last: discovery.StaleGroupVersionError{}}},
			fmt.Sprintf("discovery of %s: stale", last)},
		{"no response", aggregated{err: errors.New("no route")}, "read discovery: no route"},
	} {
		t.Run(tc.name, func(t *testing.T) { wantError(t, Discovered(tc.response, versions), tc.want) })
	}
}

// wantError fails unless err begins with want, or is nil when want is empty.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if (got == "") != (want == "") || !strings.HasPrefix(got, want) {
		t.Errorf("got error %q, want %q", got, want)
	}
}
