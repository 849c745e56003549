// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
)

// The limits of what is read of the logs of a server. An older line is not about the present state.
const (
	logPods    = 2
	logSeconds = 600
	logLines   = 1000
	logBytes   = 1 << 20
	// lineBytes limits a line in the evidence.
	lineBytes = 1000
)

// brokenReads returns functions for facts that are needed only if an API does not work.
func (c *collector) brokenReads() []func(context.Context) {
	var out []func(context.Context)
	var done []certs.Service
	flags, late := c.facts.Pre, false
	for _, a := range c.facts.APIServices {
		s := backendOf(a)
		if !c.facts.broken(a) {
			continue
		}
		flags = flags || classify(catalogue.InMessage, conditionText(a)) == "D03"
		late = late || isTimeout(a)
		if b := c.facts.Backends[s]; !slices.Contains(done, s) && len(b.Pods) > 0 {
			done = append(done, s)
			out = append(out, func(ctx context.Context) { c.readLogs(ctx, b) })
		}
	}
	if flags {
		out = append(out, c.readFlags)
	}
	if late {
		out = append(out, c.readEgress)
	}
	return out
}

// egressInterval is the time between the two reads of the metrics of kube-apiserver.
const egressInterval = 2 * time.Second

// isTimeout reports whether kube-apiserver got no response of the API in time.
func isTimeout(a apiregistrationv1.APIService) bool {
	text := conditionText(a)
	return !isAvailable(a) &&
		(classify(catalogue.InMessage, text) == "S11" || strings.Contains(text, "context deadline exceeded"))
}

// readEgress counts the connections to its konnectivity server that kube-apiserver fails to open.
// Requests time out earlier, so that no message names the cause. kube-apiserver counts a failure
// after 30 s, so the interval may have none although the server is down.
func (c *collector) readEgress(ctx context.Context) {
	process, before, err := c.egressFailures(ctx)
	if c.failed("service", "get /metrics of kube-apiserver", err) {
		return
	}
	select {
	case <-time.After(egressInterval):
	case <-ctx.Done():
	}
	again, after, err := c.egressFailures(ctx)
	if err == nil && again != process {
		err = errors.New("two kube-apiservers responded")
	}
	if c.failed("service", "get /metrics of kube-apiserver", err) {
		return
	}
	c.set(func(f *Facts) { f.EgressFailures = int(after - before) })
}

// egressFailures returns the start time of kube-apiserver's process, and how many connections to its
// konnectivity server it has failed to open.
func (c *collector) egressFailures(ctx context.Context) (process, failures float64, err error) {
	_, text, err := c.get(ctx, "/metrics", "text/plain")
	if err != nil {
		return 0, 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return 0, 0, fmt.Errorf("parse metrics of kube-apiserver: %w", err)
	}
	for _, sample := range families["process_start_time_seconds"].GetMetric() {
		process = sample.GetGauge().GetValue()
	}
	for _, sample := range families["apiserver_egress_dialer_dial_failure_count"].GetMetric() {
		if slices.ContainsFunc(sample.GetLabel(), func(l *dto.LabelPair) bool {
			return l.GetName() == "stage" && l.GetValue() == "connect"
		}) {
			failures += sample.GetCounter().GetValue()
		}
	}
	return process, failures, nil
}

// readLogs reads the logs of the pods that are most likely to show why the API does not work.
func (c *collector) readLogs(ctx context.Context, b *Backend) {
	pods := slices.Clone(b.Pods)
	slices.SortStableFunc(pods, func(x, y corev1.Pod) int {
		if podReady(x) != podReady(y) {
			if podReady(y) {
				return -1
			}
			return 1
		}
		return cmp.Compare(y.CreationTimestamp.Unix(), x.CreationTimestamp.Unix())
	})
	for _, pod := range pods[:min(len(pods), logPods)] {
		for _, container := range pod.Spec.Containers {
			waits := slices.ContainsFunc(containerStatuses(pod), func(s corev1.ContainerStatus) bool {
				return s.Name == container.Name && s.State.Waiting != nil
			})
			b.Logs = append(b.Logs, c.readLog(ctx, pod, container.Name, waits)...)
		}
	}
}

// readLog returns the last line for each finding in the log of a container, or in that of its
// previous run.
func (c *collector) readLog(ctx context.Context, pod corev1.Pod, container string, previous bool) []LogLine {
	_, text, err := do(ctx, c.core.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: container, Previous: previous, SinceSeconds: new(int64(logSeconds)), TailLines: new(int64(logLines)),
		LimitBytes: new(int64(logBytes))}))
	if apierrors.IsBadRequest(err) { // the container has not run
		return nil
	}
	if c.failed("server", fmt.Sprintf("get the log of the pod %s/%s", pod.Namespace, pod.Name), err) {
		return nil
	}
	last := map[string]LogLine{}
	for line := range strings.Lines(string(text)) {
		line = strings.ReplaceAll(line, `\"`, `"`) // in a structured log, messages are quoted
		if id := classify(catalogue.InLog, line); id != "" {
			line = strings.TrimSpace(strings.ToValidUTF8(line[:min(len(line), lineBytes)], ""))
			last[id+deniedResource.FindString(line)] = LogLine{pod.Namespace + "/" + pod.Name, container, line}
		}
	}
	var out []LogLine
	for _, line := range last {
		out = append(out, line)
	}
	slices.SortFunc(out, func(a, b LogLine) int { return cmp.Compare(a.Text, b.Text) })
	return out
}

// readFlags reads the flags of kube-apiserver: those that it publishes since 1.36, or those of its
// static pod. A managed control plane shows neither.
func (c *collector) readFlags(ctx context.Context) {
	var flagz struct {
		Flags map[string]string `json:"flags"`
	}
	err := c.getJSON(ctx, "/flagz", "application/json;g=config.k8s.io;v=v1beta1;as=Flagz", &flagz)
	if err == nil && len(flagz.Flags) > 0 {
		c.set(func(f *Facts) { f.Flags = flagz.Flags })
		return
	}
	pods, err := c.core.CoreV1().Pods(metav1.NamespaceSystem).List(ctx,
		metav1.ListOptions{LabelSelector: "component=kube-apiserver"})
	if c.failed("trust", "get /flagz, or list pods in the namespace "+metav1.NamespaceSystem, err) {
		return
	}
	for _, pod := range pods.Items {
		flags := map[string]string{}
		for _, container := range pod.Spec.Containers {
			for _, arg := range slices.Concat(container.Command, container.Args) {
				if flag, ok := strings.CutPrefix(arg, "--"); ok {
					name, value, _ := strings.Cut(flag, "=")
					flags[name] = value
				}
			}
		}
		c.set(func(f *Facts) { f.Flags = flags })
	}
}
