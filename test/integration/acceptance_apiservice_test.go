// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/util/retry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/kube-openapi/pkg/spec3"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// TestAggregator covers what Kubernetes' own conformance and integration tests check for an
// aggregated server and its APIService. It uses its own environment, because it breaks and
// deletes registrations.
func TestAggregator(t *testing.T) {
	t.Parallel()
	e := envtest.New(t, envtest.Options{})
	t.Run("reasons", func(t *testing.T) { testReasons(t, e) })
	t.Run("redirect", func(t *testing.T) { testRedirect(t, e) })
	t.Run("registration", func(t *testing.T) { testRegistration(t, e) })
	// This must be the last test: it removes the trust in the administrator's certificate.
	t.Run("client CAs", func(t *testing.T) { testClientCAs(t, e) })
}

// testRegistration changes the APIService with every verb that clients have for it, deletes it
// and creates it again.
func testRegistration(t *testing.T, e *envtest.Environment) {
	services := apiServices(t, e)
	gadgets := gadgetCase.client(t, e.Admin(t), "")
	created, err := gadgets.Create(t.Context(), gadgetCase.object(t, "g"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, gv := range install.GroupVersions() {
		changeRegistration(t, services, gv.Version+"."+gv.Group)
		describedAndBack(t, e, gv)
	}

	// changeRegistration set this label.
	selected := metav1.ListOptions{LabelSelector: "test=updated"}
	if err := services.DeleteCollection(t.Context(), metav1.DeleteOptions{}, selected); err != nil {
		t.Fatalf("delete the collection: %v", err)
	}
	e.Eventually(t, "the APIService to be gone", envtest.WaitTimeout, func(ctx context.Context) error {
		list, err := services.List(ctx, selected)
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
	e.Eventually(t, "the API to be gone from the cluster", envtest.WaitTimeout, func(ctx context.Context) error {
		if _, err := gadgets.Get(ctx, "g", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("get does not return NotFound"), err)
		}
		for _, gv := range install.GroupVersions() {
			_, err := openapi3.NewRoot(e.Client(t).Discovery().OpenAPIV3()).GVSpec(gv)
			if _, ok := errors.AsType[*openapi3.GroupVersionNotFoundError](err); !ok {
				return errors.Join(fmt.Errorf("OpenAPI v3 still has %s", gv), err)
			}
		}
		groups, err := e.Client(t).Discovery().ServerGroups()
		if err != nil {
			return err
		}
		for _, group := range groups.Groups {
			if group.Name == gadgetCase.resource.Group {
				return errors.New("the group is still in discovery")
			}
		}
		return nil
	})

	if err := e.Register(t.Context()); err != nil {
		t.Fatalf("register again: %v", err)
	}
	if got, err := gadgets.Get(t.Context(), "g", metav1.GetOptions{}); err != nil || got.GetUID() != created.GetUID() {
		t.Errorf("the gadget after its API was gone and came back: %v, error %v; want the one from before", got, err)
	}
}

// changeRegistration patches and updates the spec, the labels and the status of a live
// APIService.
func changeRegistration(t *testing.T, services apiregistration.APIServiceInterface, name string) {
	t.Helper()
	before, err := services.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := available(before); c == nil || c.Message != "all checks passed" || c.Reason != "Passed" ||
		c.Status != apiregistrationv1.ConditionTrue {
		t.Errorf("condition Available: %+v, want True, Passed, all checks passed", c)
	}
	patched, err := services.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"versionPriority":400}}`),
		metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("merge patch: %v", err)
	}
	order, err := resourceversion.CompareResourceVersion(before.ResourceVersion, patched.ResourceVersion)
	if err != nil || order >= 0 || patched.Spec.VersionPriority != 400 {
		t.Errorf("merge patch: versionPriority %d at resourceVersion %q after %q (%v), want 400 at a higher one",
			patched.Spec.VersionPriority, patched.ResourceVersion, before.ResourceVersion, err)
	}
	patched, err = services.Patch(t.Context(), name, types.StrategicMergePatchType,
		[]byte(`{"metadata":{"labels":{"test":"patched"}}}`), metav1.PatchOptions{})
	if err != nil || patched.Labels["test"] != "patched" {
		t.Errorf("strategic merge patch of a label: %v, error %v", patched.Labels, err)
	}

	type write = func(context.Context, *apiregistrationv1.APIService,
		metav1.UpdateOptions) (*apiregistrationv1.APIService, error)
	update := func(what string, change func(*apiregistrationv1.APIService), write write) {
		t.Helper()
		// Retry on conflict, because kube-apiserver's controllers also write the object.
		if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			service, err := services.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			change(service)
			_, err = write(t.Context(), service, metav1.UpdateOptions{})
			return err
		}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	update("update of the status", func(s *apiregistrationv1.APIService) {
		s.Status.Conditions = append(s.Status.Conditions, apiregistrationv1.APIServiceCondition{
			Type: "StatusUpdated", Status: apiregistrationv1.ConditionTrue, Reason: "Test", Message: "by a test",
			LastTransitionTime: metav1.Now(),
		})
	}, services.UpdateStatus)
	update("update of the labels",
		func(s *apiregistrationv1.APIService) { s.Labels = map[string]string{"test": "updated"} }, services.Update)
	addition := []byte(`{"status":{"conditions":[{"type":"StatusPatched","status":"True","reason":"Test","message":"by a test"}]}}`)
	if _, err := services.Patch(t.Context(), name, types.StrategicMergePatchType, addition, metav1.PatchOptions{},
		"status"); err != nil {
		t.Fatalf("patch of the status: %v", err)
	}

	list, err := services.List(t.Context(), metav1.ListOptions{LabelSelector: "test=updated"})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list.Items, func(s apiregistrationv1.APIService) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("list by the label: %s is not among %d", name, len(list.Items))
	}
	got := map[apiregistrationv1.APIServiceConditionType]bool{}
	for _, c := range list.Items[i].Status.Conditions {
		got[c.Type] = c.Status == apiregistrationv1.ConditionTrue
	}
	if !got["StatusUpdated"] || !got["StatusPatched"] || !got[apiregistrationv1.Available] {
		t.Errorf("conditions that are true: %v, want Available, StatusUpdated, StatusPatched", got)
	}
}

// describedAndBack checks that kube-apiserver serves the OpenAPI v3 document of the version, and
// that a client can encode and decode it without loss.
func describedAndBack(t *testing.T, e *envtest.Environment, gv schema.GroupVersion) {
	t.Helper()
	spec, err := openapi3.NewRoot(e.Client(t).Discovery().OpenAPIV3()).GVSpec(gv)
	if err != nil {
		t.Fatalf("OpenAPI v3 of %s: %v", gv, err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	var back spec3.OpenAPI
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*spec, back) {
		t.Errorf("OpenAPI v3 of %s is another after it was written as JSON and read", gv)
	}
	if path := "/apis/" + gv.String() + "/"; spec.Paths == nil || spec.Paths.Paths[path] == nil {
		t.Errorf("OpenAPI v3 of %s has no path %s", gv, path)
	}
}

func apiServices(t *testing.T, e *envtest.Environment) apiregistration.APIServiceInterface {
	t.Helper()
	client, err := apiregistration.NewForConfig(e.Admin(t))
	if err != nil {
		t.Fatal(err)
	}
	return client.APIServices()
}

// available returns the condition Available, or nil if it does not exist yet.
func available(service *apiregistrationv1.APIService) *apiregistrationv1.APIServiceCondition {
	for _, c := range service.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			return &c
		}
	}
	return nil
}

// undiscovered returns the versions whose discovery kube-apiserver could not read.
func undiscovered(t *testing.T, e *envtest.Environment) (map[schema.GroupVersion]bool, error) {
	t.Helper()
	_, _, err := e.Client(t).Discovery().ServerGroupsAndResources()
	failed := map[schema.GroupVersion]bool{}
	if partial, ok := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err); ok {
		for gv := range partial.Groups {
			failed[gv] = true
		}
		return failed, nil
	}
	return failed, err
}
