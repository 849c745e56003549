// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/internal/doctor"
)

// TestDoctor checks that the doctor, with a pod, tells a network that only kube-apiserver cannot use
// from a Service that does not work.
func TestDoctor(t *testing.T) {
	c := newCluster(t)
	service, err := c.core.CoreV1().Services(namespace).Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	c.wantCause("")
	for _, tc := range []struct {
		chains []string // OUTPUT has the connections of the node, and FORWARD those of pods
		want   string
	}{
		{[]string{"OUTPUT"}, "S18"},
		{[]string{"OUTPUT", "FORWARD"}, "S19"},
	} {
		var repair []string
		for _, chain := range tc.chains {
			rule := chain + " -p tcp -m conntrack --ctorigdst " + service.Spec.ClusterIP +
				" -j REJECT --reject-with tcp-reset"
			c.onNode("iptables -I "+rule, nil)
			repair = append(repair, "iptables -D "+rule+" || true")
		}
		c.Cleanup(func() { c.onNode(strings.Join(repair, "\n"), nil) })
		c.replacePod() // closes the connections of kube-apiserver
		c.wantCause(tc.want)
		c.onNode(strings.Join(repair, "\n"), nil)
		c.wantCause("")
	}
	jobs, err := c.core.BatchV1().Jobs(metav1.NamespaceDefault).List(c.Context(), metav1.ListOptions{})
	if err != nil || len(jobs.Items) > 0 {
		c.Errorf("got %d Jobs, %v, want that the doctor has deleted its Jobs", len(jobs.Items), err)
	}
}

// replacePod deletes the pod of the server, and waits until the next one is ready.
func (c cluster) replacePod() {
	c.Helper()
	before := podUID(c)
	if err := c.core.CoreV1().Pods(namespace).Delete(c.Context(), name+"-0", metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	c.eventually("another pod that is ready", func(ctx context.Context) error {
		pod, err := c.core.CoreV1().Pods(namespace).Get(ctx, name+"-0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if string(pod.UID) == before || !slices.ContainsFunc(pod.Status.Conditions, func(p corev1.PodCondition) bool {
			return p.Type == corev1.PodReady && p.Status == corev1.ConditionTrue
		}) {
			return fmt.Errorf("the pod %s is %s and not ready", pod.UID, pod.Status.Phase)
		}
		return nil
	})
}

// wantCause waits until the finding of this ID is the only root cause. An empty ID means none.
func (c cluster) wantCause(id string) {
	c.Helper()
	c.eventually("the root cause "+id, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		facts, err := doctor.Collect(ctx, c.config, doctor.Options{
			Pod: &doctor.PodOptions{Image: os.Getenv("DOCTOR_IMAGE"), Namespace: metav1.NamespaceDefault}})
		if err != nil {
			return err
		}
		report := doctor.NewReport(facts)
		var causes []string
		for _, cause := range report.RootCauses {
			causes = append(causes, cause.ID)
		}
		if got := strings.Join(causes, " "); got != id {
			var text strings.Builder
			return errors.Join(fmt.Errorf("got %q", got), report.Write(&text, "text", false), errors.New(text.String()))
		}
		return nil
	})
}
