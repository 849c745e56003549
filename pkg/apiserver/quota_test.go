// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// TestQuotaPlugin: the plugin ResourceQuota is enabled by default and called last.
func TestQuotaPlugin(t *testing.T) {
	options := mustOptions(testAPI).Recommended.Admission
	order := options.RecommendedPluginOrder
	if slices.Index(order, "ResourceQuota") != len(order)-1 || options.DefaultOffPlugins.Has("ResourceQuota") {
		t.Errorf("plugins %v without %v, want ResourceQuota last", order, options.DefaultOffPlugins.UnsortedList())
	}
	if errs := options.Validate(); len(errs) > 0 {
		t.Errorf("admission options: %v", errs)
	}
}

// TestQuota: with the server's initializers, the plugin counts objects, admits one that fits the
// quota, and rejects one that does not.
func TestQuota(t *testing.T) {
	gvr := v1.SchemeGroupVersion.WithResource("things")
	count := corev1.ResourceName("count/" + gvr.GroupResource().String())
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "q", ResourceVersion: "1"},
		Status: corev1.ResourceQuotaStatus{
			Hard: corev1.ResourceList{count: resource.MustParse("1")},
			Used: corev1.ResourceList{count: resource.MustParse("0")},
		},
	}
	client := fake.NewClientset(quota)
	factory := informers.NewSharedInformerFactory(client, 0)
	if err := factory.Core().V1().ResourceQuotas().Informer().GetIndexer().Add(quota); err != nil {
		t.Fatal(err)
	}
	plugin, err := resourcequota.NewResourceQuota(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	plugin.SetDrainedNotification(t.Context().Done())
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(factory)
	initializers, err := mustOptions(testAPI).Recommended.ExtraAdmissionInitializers(
		&genericapiserver.RecommendedConfig{
			SharedInformerFactory: factory, ClientConfig: &rest.Config{},
		})
	if err != nil {
		t.Fatal(err)
	}
	for _, initializer := range initializers {
		initializer.Initialize(plugin)
	}
	if err := plugin.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	create := admission.NewAttributesRecord(&metav1.PartialObjectMetadata{}, nil,
		v1.SchemeGroupVersion.WithKind("Thing"), "demo", "t", gvr, "",
		admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{})
	if err := plugin.Validate(t.Context(), create, nil); err != nil {
		t.Errorf("the first: %v, want it to fit", err)
	}
	got, err := client.CoreV1().ResourceQuotas("demo").Get(t.Context(), "q", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(corev1.ResourceList{count: resource.MustParse("1")}, got.Status.Used); diff != "" {
		t.Errorf("used (-want +got):\n%s", diff)
	}
	if err := factory.Core().V1().ResourceQuotas().Informer().GetIndexer().Update(got); err != nil {
		t.Fatal(err)
	}
	if err := plugin.Validate(t.Context(), create, nil); !apierrors.IsForbidden(err) {
		t.Errorf("the second: %v, want Forbidden", err)
	}
}
