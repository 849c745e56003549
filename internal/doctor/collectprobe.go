// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"example.com/extension-apiserver/internal/certs"
)

// PodOptions select the pod that connects to servers from the pod network.
type PodOptions struct {
	Image     string // an image of kubectl-aggregation
	Namespace string
}

const (
	// probedEndpoints and probedServices limit the connections of the pod.
	probedEndpoints = 2
	probedServices  = 50
	// podSeconds limits how long the pod runs, and keptSeconds how long its Job exists after that, if
	// the doctor cannot delete it.
	podSeconds  = 120
	keptSeconds = 60
	// deleteTimeout limits the deletion of the Job, also after the end of the context.
	deleteTimeout = 3 * time.Second
)

// targets returns what the pod connects to: the Services of APIs that do not work, by name and by
// ClusterIP, and their endpoints.
func (f *Facts) targets() []Attempt {
	var out []Attempt
	var done []certs.Service
	for _, a := range f.APIServices {
		s := backendOf(a)
		b := f.Backends[s]
		if !f.broken(a) || b.Service == nil || slices.Contains(done, s) || len(done) == probedServices {
			continue
		}
		done = append(done, s)
		add := func(host string, port int32) {
			out = append(out, Attempt{ServerName: s.ServerName(),
				Address: net.JoinHostPort(host, strconv.Itoa(int(port)))})
		}
		add(s.ServerName(), portOf(a))
		if ip := b.Service.Spec.ClusterIP; ip != "" && ip != corev1.ClusterIPNone {
			add(ip, portOf(a))
		}
		for _, e := range b.endpoints(portOf(a)) {
			out = append(out, Attempt{ServerName: s.ServerName(), Address: e})
		}
	}
	return out
}

// endpoints returns the addresses of ready endpoints at the port of the Service, as host and port.
func (b *Backend) endpoints(port int32) []string {
	i := slices.IndexFunc(b.Service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	if i < 0 {
		return nil
	}
	var out []string
	for _, slice := range b.Slices {
		for _, p := range slice.Ports {
			if ptr.Deref(p.Name, "") != b.Service.Spec.Ports[i].Name || p.Port == nil {
				continue
			}
			for _, e := range slice.Endpoints {
				if ptr.Deref(e.Conditions.Ready, true) && len(e.Addresses) > 0 && len(out) < probedEndpoints {
					out = append(out, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))))
				}
			}
		}
	}
	return out
}

// podReads returns a function that connects to servers from a pod.
func (c *collector) podReads(o *PodOptions) []func(context.Context) {
	if o == nil {
		return nil
	}
	targets := c.facts.targets()
	if len(targets) == 0 {
		return nil
	}
	return []func(context.Context){func(ctx context.Context) {
		if deadline, ok := ctx.Deadline(); ok { // leaves time to delete the Job
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline.Add(-deleteTimeout))
			defer cancel()
		}
		attempts, err := c.connectFromPod(ctx, *o, targets)
		if !c.failed("service", "connect from a pod in the namespace "+o.Namespace, err) {
			c.set(func(f *Facts) { f.Attempts = attempts })
		}
	}}
}

// connectFromPod creates a Job, returns what its pod found, and deletes the Job.
func (c *collector) connectFromPod(ctx context.Context, o PodOptions, targets []Attempt) (out []Attempt, err error) {
	jobs := c.core.BatchV1().Jobs(o.Namespace)
	job, err := jobs.Create(ctx, probeJob(o.Image, targets), metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
		defer cancel()
		if deleteErr := jobs.Delete(ctx, job.Name, metav1.DeleteOptions{
			PropagationPolicy: new(metav1.DeletePropagationBackground)}); deleteErr != nil {
			err = errors.Join(err, fmt.Errorf("delete Job %s/%s: %w", o.Namespace, job.Name, deleteErr))
		}
	}()
	pod, err := c.awaitPod(ctx, job)
	if err != nil {
		return nil, err
	}
	_, text, err := do(ctx, c.core.CoreV1().Pods(o.Namespace).GetLogs(pod, &corev1.PodLogOptions{}))
	if err != nil {
		return nil, fmt.Errorf("get the log of the pod %s: %w", pod, err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("parse the log of the pod %s: %w", pod, err)
	}
	return out, nil
}

// awaitPod waits until the pod of a Job has ended, and returns its name. It returns an error if the
// pod failed, or cannot start.
func (c *collector) awaitPod(ctx context.Context, job *batchv1.Job) (name string, err error) {
	state := "it has no pod"
	err = wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		pods, err := c.core.CoreV1().Pods(job.Namespace).List(ctx,
			metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name})
		if err != nil || len(pods.Items) == 0 {
			return false, err
		}
		pod := pods.Items[0]
		name, state = pod.Name, podText(pod)
		noImage := slices.ContainsFunc(containerStatuses(pod), func(s corev1.ContainerStatus) bool {
			return s.State.Waiting != nil && slices.Contains(
				[]string{"ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"}, s.State.Waiting.Reason)
		})
		if noImage || pod.Status.Phase == corev1.PodFailed {
			return false, errors.New(state)
		}
		return pod.Status.Phase == corev1.PodSucceeded, nil
	})
	if wait.Interrupted(err) {
		err = fmt.Errorf("the Job %s did not end: %s", job.Name, state)
	}
	return name, err
}

// probeJob returns the Job. Its pod has no permissions, and Pod Security "restricted" admits it.
func probeJob(image string, targets []Attempt) *batchv1.Job {
	args := []string{"probe"}
	for _, t := range targets {
		args = append(args, t.target())
	}
	small := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"),
		corev1.ResourceMemory: resource.MustParse("64Mi")}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "aggregation-doctor-"},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)), ActiveDeadlineSeconds: new(int64(podSeconds)),
			TTLSecondsAfterFinished: new(int32(keptSeconds)),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false),
				EnableServiceLinks: new(false),
				SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(65532)),
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
				Containers: []corev1.Container{{
					Name: "probe", Image: image, Args: args,
					Resources: corev1.ResourceRequirements{Requests: small, Limits: small},
					SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false),
						ReadOnlyRootFilesystem: new(true),
						Capabilities:           &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
				}},
			}},
		},
	}
}
