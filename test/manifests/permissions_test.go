// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/workshop/install"
	"example.com/extension-apiserver/test/manifests/permissions"
)

// ofEnvironment returns the components under the names of the running server.
func ofEnvironment(components ...string) variant {
	return variant{components: components, names: fmt.Sprintf(
		"apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnamespace: %s\nnamePrefix: %s\n",
		envtest.Namespace, strings.TrimSuffix(envtest.ServiceName, "apiserver"))}
}

// testServerPermissions runs the server with the permissions of the manifests, exercises all of
// them, and checks that no request was forbidden and no permission is unused.
func testServerPermissions(c *cluster) {
	text := render(c, ofEnvironment())
	c.apply(c.pick(text, "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "RoleBinding"))
	if err := c.env.Register(c.Context()); err != nil {
		c.Fatal(err)
	}
	c.exercise()
	never := map[string]string{}
	for _, verb := range []string{"get", "list", "watch"} {
		never[verb+" *."+install.GroupVersions()[0].Group] = "no admission policy has its parameters in the API"
	}
	if envtest.Minor() < "1.36" {
		for _, verb := range []string{"list", "watch"} {
			for _, resource := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
				never[verb+" "+resource+".admissionregistration.k8s.io"] = "the API is not served before Kubernetes " +
					"1.36"
			}
		}
	}
	c.comparePermissions(envtest.Namespace, envtest.ServiceName, parse(c, text), never)
}

// exercise makes the server use its permissions: create a TokenReview and a SubjectAccessReview,
// read a namespace that its informer does not know, and update a quota.
func (c *cluster) exercise() {
	c.Helper()
	c.getAs(envtest.Namespace, envtest.ServiceName, "/apis")

	config, err := c.env.AdminConfig()
	if err != nil {
		c.Fatal(err)
	}
	widget := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(readFile(c, "../../sample/objects/widget.yaml")), &widget.Object); err != nil {
		c.Fatal(err)
	}
	resources := install.GroupVersions()[0].WithResource("widgets")
	widgets, counted := dynamic.NewForConfigOrDie(config).Resource(resources),
		corev1.ResourceName("count/"+resources.GroupResource().String())
	widget.SetNamespace("nowhere")
	if _, err := widgets.Namespace("nowhere").Create(c.Context(), widget,
		metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		c.Errorf("create in a namespace that does not exist: %v, want NotFound", err)
	}
	if _, err := c.client.CoreV1().ResourceQuotas("default").Create(c.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("1000")}},
	}, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	widget.SetNamespace("default")
	// kube-controller-manager looks for new kinds every 30 s, and evaluates a quota again when its
	// spec changes.
	allowed := int64(1000)
	c.env.Eventually(c, "kube-controller-manager to count for the quota", 2*patience, func(ctx context.Context) error {
		quota, err := c.client.CoreV1().ResourceQuotas("default").Get(ctx, "widgets", metav1.GetOptions{})
		if err != nil || len(quota.Status.Used) > 0 {
			return err
		}
		allowed++
		quota.Spec.Hard[counted] = *resource.NewQuantity(allowed, resource.DecimalSI)
		_, err = c.client.CoreV1().ResourceQuotas("default").Update(ctx, quota, metav1.UpdateOptions{})
		return errors.Join(errors.New("no status yet"), err)
	})
	c.env.Eventually(c, "a widget booked by the server", 2*patience, func(ctx context.Context) error {
		widget.SetName("")
		widget.SetGenerateName("booked-")
		_, err := widgets.Namespace("default").Create(ctx, widget, metav1.CreateOptions{})
		if used, _ := permissions.Requests([]byte(readFile(c, c.audit)),
			userName(envtest.Namespace, envtest.ServiceName)); err == nil &&
			!slices.Contains(used, "update resourcequotas/status default/widgets") {
			err = errors.New("the server has not booked it: it does not know the quota yet")
		}
		return err
	})
}

// comparePermissions compares the permissions of a ServiceAccount with its requests in the audit
// log of kube-apiserver.
func (c *cluster) comparePermissions(namespace, account string, objects []*unstructured.Unstructured,
	never map[string]string) {
	c.Helper()
	for _, err := range permissions.Compare(userName(namespace, account), []byte(readFile(c, c.audit)),
		c.granted(account, objects), never) {
		c.Error(err)
	}
}

func userName(namespace, account string) string {
	return "system:serviceaccount:" + namespace + ":" + account
}

// granted returns one line for each permission of a ServiceAccount, from roles among the objects,
// or else from those in the cluster.
func (c *cluster) granted(account string, objects []*unstructured.Unstructured) []string {
	c.Helper()
	var out []string
	for _, obj := range objects {
		if !strings.HasSuffix(obj.GetKind(), "RoleBinding") {
			continue
		}
		binding := as[rbacv1.RoleBinding](c, obj)
		if binding.Subjects[0].Name != account {
			continue
		}
		flat, err := permissions.Flatten(binding.Namespace, c.rulesOf(binding))
		if err != nil {
			c.Errorf("%s: %v", binding.Name, err)
		}
		out = append(out, flat...)
	}
	return out
}

func (c *cluster) rulesOf(binding *rbacv1.RoleBinding) []rbacv1.PolicyRule {
	c.Helper()
	if binding.RoleRef.Kind == "ClusterRole" {
		role, err := c.client.RbacV1().ClusterRoles().Get(c.Context(), binding.RoleRef.Name, metav1.GetOptions{})
		if err != nil {
			c.Fatal(err)
		}
		return role.Rules
	}
	role, err := c.client.RbacV1().Roles(binding.Namespace).Get(c.Context(), binding.RoleRef.Name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return role.Rules
}
