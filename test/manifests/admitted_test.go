// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testAdmitted checks that kube-apiserver admits every object of every variant, and every pod that
// controllers would create from them, in a namespace with the labels of that variant.
func testAdmitted(c *cluster) {
	c.applyCRDs()
	for _, v := range variants(c) {
		text := render(c, v)
		// A dry run finds only existing objects.
		c.apply(c.pick(text, "Namespace", "ServiceAccount", "PriorityClass"))
		c.apply(text, "--dry-run=server", "--validate=strict")
		for _, w := range workloads(c, parse(c, text)) {
			if err := c.tryPod(w.GetNamespace(), w.pod.Spec); err != nil {
				c.Errorf("%s: pod of %s %s: %v", v.name, w.GetKind(), w.GetName(), err)
			}
			if c.Failed() {
				return
			}
		}
	}
	// Checks that pods are validated at all, and that the exception is needed.
	c.apply(c.pick(render(c, variant{}), "Namespace"))
	exception := server(c, parse(c, render(c, variant{components: []string{"profile-host-network"}}))).pod.Spec
	base := server(c, parse(c, render(c, variant{})))
	weak := base.pod.Spec
	weak.Containers[0].SecurityContext = nil
	for name, spec := range map[string]corev1.PodSpec{"with hostNetwork": exception, "without securityContext": weak} {
		if err := c.tryPod(base.GetNamespace(), spec); !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), "violates PodSecurity \"restricted:") {
			c.Errorf("pod %s in a restricted namespace: %v, want it forbidden", name, err)
		}
	}
}

// tryPod creates a pod as a dry run.
func (c *cluster) tryPod(namespace string, spec corev1.PodSpec) error {
	c.Helper()
	_, err := c.client.CoreV1().Pods(namespace).Create(c.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"}, Spec: spec},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// testOneReplica checks that a second replica of the embedded storage is rejected, with the reason
// in one line.
func testOneReplica(c *cluster) {
	text := render(c, variant{components: []string{"embedded-storage"}})
	c.apply(c.pick(text, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "StatefulSet"))
	w := server(c, parse(c, text))
	namespace, set := w.GetNamespace(), "statefulset/"+w.GetName()
	want := w.GetName() +
		" keeps its data in the pod (embedded storage) and can have 1 replica, found 2; for more use the component " +
		"external-etcd"
	refused := func(stderr string, err error) error {
		if err == nil || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			return fmt.Errorf("failed: %t, with %q; want it to fail with one line, %q", err != nil, stderr, want)
		}
		return nil
	}
	// kube-apiserver takes a moment to apply a new policy.
	c.eventually("the policy", func(context.Context) error {
		_, stderr, err := c.kubectl("", "scale", "-n", namespace, set, "--replicas=2")
		return refused(stderr, err)
	})
	two := strings.Replace(c.pick(text, "StatefulSet"), "replicas: 1", "replicas: 2", 1)
	_, stderr, err := c.kubectl(two, "apply", "--server-side", "--force-conflicts", "-f", "-")
	if err := refused(stderr, err); err != nil {
		c.Errorf("apply: %v", err)
	}
	_, stderr, err = c.kubectl("", "patch", "-n", namespace, set, "-p", `{"spec":{"replicas":2}}`)
	if err := refused(stderr, err); err != nil {
		c.Errorf("patch: %v", err)
	}
	for _, replicas := range []string{"0", "1"} {
		if _, stderr, err := c.kubectl("", "scale", "-n", namespace, set, "--replicas="+replicas); err != nil {
			c.Errorf("scale to %s: %v %s", replicas, err, stderr)
		}
	}
	if _, stderr, err := c.kubectl("", "delete", "-n", namespace, set); err != nil {
		c.Fatalf("%v %s", err, stderr)
	}
	if _, stderr, err := c.kubectl(two, "create", "-f", "-"); refused(stderr, err) != nil {
		c.Errorf("create: %v", refused(stderr, err))
	}
	// The policy does not apply to another StatefulSet of the namespace.
	other := strings.Replace(two, "name: "+w.GetName()+"\n  namespace", "name: other\n  namespace", 1)
	if _, stderr, err := c.kubectl(other, "create", "--dry-run=server", "-f", "-"); err != nil {
		c.Errorf("another StatefulSet: %v %s", err, stderr)
	}
}
