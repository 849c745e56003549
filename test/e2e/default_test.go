// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// server is the label selector of the extension API server's pods.
const server = "app.kubernetes.io/name=extension-apiserver,app.kubernetes.io/component=server"

func TestDefault(t *testing.T) {
	c := newCluster(t)
	for _, test := range []struct {
		name string
		run  func(cluster)
	}{
		{"kinds", kinds},
		{"identity", identity},
		{"unprivileged user", unprivileged},
		{"pods", pods},
		{"certificates", certificates},
		{"certificates from a laptop", fromALaptop},
		{"certificates on the node", onTheNode},
		{"deployed again", deployedAgain},
		{"new pod", newPod},
		{"second replica", secondReplica},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := c
			c.T = t
			test.run(c)
		})
	}
}

func kinds(c cluster) {
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		list, err := c.discovery.ServerResourcesForGroupVersion(widgets.Group + "/" + version)
		if err != nil || len(list.APIResources) == 0 {
			c.Errorf("discovery of %s: got %v, %v", version, list, err)
		}
	}
}

// identity checks that kube-apiserver authenticates the caller and passes on the identity.
func identity(c cluster) {
	reviews := schema.GroupVersionResource{Group: widgets.Group, Version: "v1", Resource: "identityreviews"}
	review, err := c.dynamic.Resource(reviews).Create(c.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "workshop.example.com/v1", "kind": "IdentityReview",
	}}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	if got := fmt.Sprint(review.Object["status"]); !strings.Contains(got, "authenticator:RequestHeader") ||
		!strings.Contains(got, "username:kubernetes-admin") {
		c.Errorf("got %s, want the user kubernetes-admin, by RequestHeader", got)
	}
}

// unprivileged checks that an unprivileged user is forbidden to list widgets.
func unprivileged(c cluster) {
	config := rest.CopyConfig(c.config)
	config.Impersonate.UserName = "stranger"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		c.Fatal(err)
	}
	if _, err := client.Resource(widgets).Namespace(metav1.NamespaceDefault).List(c.Context(),
		metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		c.Errorf("an unprivileged user lists widgets: got %v, want Forbidden", err)
	}
}

func pods(c cluster) {
	list, err := c.core.CoreV1().Pods(namespace).List(c.Context(), metav1.ListOptions{LabelSelector: server})
	if err != nil || len(list.Items) != 1 {
		c.Fatalf("got %d pods, %v, want 1", len(list.Items), err)
	}
	pod := list.Items[0]
	status := pod.Status.ContainerStatuses[0]
	if want := os.Getenv("IMAGE"); pod.Spec.Containers[0].Image != want || status.RestartCount != 0 {
		c.Errorf("got image %s, restarted %d times, want %s, which make kind-deploy loaded, and 0",
			pod.Spec.Containers[0].Image, status.RestartCount, want)
	}
	ns, err := c.core.CoreV1().Namespaces().Get(c.Context(), namespace, metav1.GetOptions{})
	if err != nil || ns.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
		c.Errorf("got labels %v, %v, want that Pod Security restricted is enforced", ns.Labels, err)
	}
}

// certificates checks that the CronJob, run now, changes neither the key pair nor the caBundle,
// because neither is due.
func certificates(c cluster) {
	before := certificateState(c)
	renewNow(c, patience)
	if after := certificateState(c); after != before {
		c.Errorf("after the renewal Job:\n%s\nwant it unchanged:\n%s", after, before)
	}
}

// certificateState checks that the APIServices trust a CA of the serving Secret. It returns the
// serving certificate and the caBundles.
func certificateState(c cluster) string {
	c.Helper()
	secret, err := c.core.CoreV1().Secrets(namespace).Get(c.Context(), name+"-serving", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	apiServices := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	state := string(secret.Data[corev1.TLSCertKey])
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		apiService, err := c.dynamic.Resource(apiServices).Get(c.Context(), version+"."+widgets.Group,
			metav1.GetOptions{})
		if err != nil {
			c.Fatal(err)
		}
		encoded, _, _ := unstructured.NestedString(apiService.Object, "spec", "caBundle")
		bundle, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(bundle) == 0 || !bytes.Equal(bytes.TrimSpace(bundle),
			bytes.TrimSpace(secret.Data["ca.crt"])) {
			c.Errorf("APIService %s has caBundle %q, %v, want the ca.crt of the Secret",
				apiService.GetName(), bundle, err)
		}
		state += encoded + "\n"
	}
	return state
}

// deployedAgain checks that deploying again changes neither the pod nor any object of the API.
// deploy.sh reports the object that the API rejects, and succeeds.
func deployedAgain(c cluster) {
	widget := c.createWidget("again")
	before := podUID(c)
	objects := c.TempDir()
	text := "apiVersion: workshop.example.com/v1\nkind: Widget\nmetadata: {name: refused, namespace: " +
		"default}\nspec: {model: pendulum, replicas: -1}\n"
	if err := os.WriteFile(filepath.Join(objects, "widget.yaml"), []byte(text), 0o600); err != nil {
		c.Fatal(err)
	}
	if out := c.script("deploy.sh", "OBJECTS="+objects); !strings.Contains(out,
		"the API works, and rejects "+objects+"/widget.yaml: ") {
		c.Errorf("deploy.sh does not report the refused object:\n%s", out)
	}
	if after := podUID(c); after != before {
		c.Errorf("got the pod %s, want the same as before, %s", after, before)
	}
	if err := c.sameWidget(c.Context(), widget); err != nil {
		c.Error(err)
	}
	c.deleteWidget(widget)
}

func podUID(c cluster) string {
	c.Helper()
	pod, err := c.core.CoreV1().Pods(namespace).Get(c.Context(), name+"-0", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return string(pod.UID)
}

// newPod checks that a recreated pod has the same objects: they are on the volume.
func newPod(c cluster) {
	widget := c.createWidget("kept")
	c.replacePod()
	c.eventually("the widget", func(ctx context.Context) error { return c.sameWidget(ctx, widget) })
	c.deleteWidget(widget)
}

// secondReplica checks that scaling to two is rejected: a second replica would have other objects.
func secondReplica(c cluster) {
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: autoscalingv1.ScaleSpec{Replicas: 2}}
	_, err := c.core.AppsV1().StatefulSets(namespace).UpdateScale(c.Context(), name, scale, metav1.UpdateOptions{})
	if err == nil || !strings.Contains(err.Error(), "1 replica, found 2") {
		c.Errorf("scale to 2: got %v, want that it is refused because 1 replica is the most", err)
	}
}
