// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/component-base/metrics/testutil"
)

const agentName = "konnectivity-agent"

// TestKonnectivity checks that kube-apiserver reaches the extension API server and the kubelet
// only through konnectivity.
func TestKonnectivity(t *testing.T) {
	c := newCluster(t)
	before := tunnelPackets(c)
	identity(c)
	writesAndWatch(c)
	logs(c)
	after := tunnelPackets(c)
	for _, segment := range []string{"from_client", "to_client"} {
		if after[segment] <= before[segment] {
			c.Errorf("packets with data %s of the tunnel: got %v after %v, want more", segment, after[segment],
				before[segment])
		}
	}
	withoutAgents(c)
}

// tunnelPackets returns kube-apiserver's count of tunnel packets with data, by direction.
func tunnelPackets(c cluster) map[string]float64 {
	c.Helper()
	text, err := c.core.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	metrics := testutil.NewMetrics()
	if err := testutil.ParseMetrics(string(text), &metrics); err != nil {
		c.Fatal(err)
	}
	packets := map[string]float64{}
	for _, sample := range metrics["konnectivity_network_proxy_client_stream_packets_total"] {
		if sample.Metric["packet_type"] == "DATA" {
			packets[string(sample.Metric["segment"])] += float64(sample.Value)
		}
	}
	return packets
}

func writesAndWatch(c cluster) {
	c.Helper()
	client := c.dynamic.Resource(widgets).Namespace(metav1.NamespaceDefault)
	events, err := client.Watch(c.Context(), metav1.ListOptions{FieldSelector: "metadata.name=tunnelled"})
	if err != nil {
		c.Fatal(err)
	}
	defer events.Stop()
	widget := c.createWidget("tunnelled")
	if err := c.sameWidget(c.Context(), widget); err != nil {
		c.Error(err)
	}
	c.deleteWidget(widget)
	for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
		select {
		case got := <-events.ResultChan():
			if got.Type != want {
				c.Errorf("watch: got %s %v, want %s", got.Type, got.Object, want)
			}
		case <-time.After(patience):
			c.Fatalf("watch: no %s within %s", want, patience)
		}
	}
}

// logs reads the logs of the extension API server, which kube-apiserver gets from the kubelet.
func logs(c cluster) {
	c.Helper()
	pods, err := c.core.CoreV1().Pods(namespace).List(c.Context(), metav1.ListOptions{LabelSelector: server})
	if err != nil || len(pods.Items) == 0 {
		c.Fatalf("pods of our server: %v, %v", pods, err)
	}
	text, err := c.core.CoreV1().Pods(namespace).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{}).DoRaw(c.Context())
	if err != nil || len(text) == 0 {
		c.Errorf("logs of %s: %q, %v", pods.Items[0].Name, text, err)
	}
}

// withoutAgents checks that requests to the API fail while there is no agent, and that
// kube-apiserver's own APIs work meanwhile. Afterwards both work.
func withoutAgents(c cluster) {
	c.Helper()
	read := func(ctx context.Context) error {
		_, err := c.dynamic.Resource(widgets).List(ctx, metav1.ListOptions{})
		return err
	}
	scaleAgents(c, 0)
	c.Cleanup(func() { scaleAgents(c, 2) })
	c.eventually("requests to our API to fail without agents", func(ctx context.Context) error {
		switch err := read(ctx); {
		case err == nil:
			return errors.New("it responded")
		case !apierrors.IsServiceUnavailable(err) && !apierrors.IsInternalError(err):
			return fmt.Errorf("got %w, want that the service is unavailable", err)
		}
		return nil
	})
	if _, err := c.core.CoreV1().ConfigMaps(metav1.NamespaceSystem).List(c.Context(),
		metav1.ListOptions{}); err != nil {
		c.Errorf("kube-apiserver's own API without agents: %v", err)
	}
	scaleAgents(c, 2)
	began := time.Now()
	c.eventually("our API, with agents again", read)
	c.Logf("responds again %s after the agents were created", time.Since(began).Round(time.Second))
}

func scaleAgents(c cluster, replicas int32) {
	c.Helper()
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: agentName, Namespace: metav1.NamespaceSystem},
		Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	ctx := context.WithoutCancel(c.Context()) // also valid in a cleanup
	if _, err := c.core.AppsV1().Deployments(metav1.NamespaceSystem).UpdateScale(ctx, agentName, scale,
		metav1.UpdateOptions{}); err != nil {
		c.Error(err)
	}
}
