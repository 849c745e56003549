// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeDirectory is the name of the pods and of the volume, which on kind is a directory of the
// node.
const nodeDirectory = "node-directory"

// onTheNode checks that certgen renews a key pair in a directory of the node, by renames, and that
// a server that mounts the directory serves the new certificate. A hostPath brings
// kube-apiserver's own files to it the same way.
func onTheNode(c cluster) {
	claims, pods := c.core.CoreV1().PersistentVolumeClaims(namespace), c.core.CoreV1().Pods(namespace)
	c.removeLater(nodeDirectory, claims.Delete)
	if _, err := claims.Create(c.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: nodeDirectory},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	// Due immediately, because it has been valid for an hour.
	certgenOnTheNode(c, "init", "--with=", "--lifetime=20m", "--dir=/pki")
	c.removeLater(nodeDirectory, pods.Delete)
	if _, err := pods.Create(c.Context(), serverOnTheNode(c), metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	var due string
	c.eventually("the certificate in the directory of the node", func(ctx context.Context) (err error) {
		due, err = c.served(ctx, nodeDirectory)
		return err
	})
	certgenOnTheNode(c, "renew", "--dir=/pki", "--files-only")
	began := time.Now()
	c.eventually("the renewed one", func(ctx context.Context) error {
		if serial, err := c.served(ctx, nodeDirectory); err != nil || serial == due {
			return errors.Join(errors.New("it serves "+serial), err)
		}
		return nil
	})
	c.Logf("served %.0f s after certgen ended", time.Since(began).Seconds())
	if pod, err := pods.Get(c.Context(), nodeDirectory, metav1.GetOptions{}); err != nil ||
		pod.Status.ContainerStatuses[0].RestartCount != 0 {
		c.Errorf("got %v, %v, want no restart", pod.Status.ContainerStatuses, err)
	}
}

// removeLater deletes an object when the test ends.
func (c cluster) removeLater(name string, remove func(context.Context, string, metav1.DeleteOptions) error) {
	c.Helper()
	c.Cleanup(func() {
		if err := remove(context.WithoutCancel(c.Context()), name, metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
	})
}

// certgenOnTheNode runs a certgen command in a pod like that of the Job, with the volume at /pki
// and the CA of the cluster's API in it.
func certgenOnTheNode(c cluster, command string, args ...string) {
	c.Helper()
	cronJob, err := c.core.BatchV1().CronJobs(namespace).Get(c.Context(), name+"-certgen-renew", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: nodeDirectory + "-" + command},
		Spec: cronJob.Spec.JobTemplate.Spec.Template.Spec}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	mount(&pod.Spec, "pki", "/pki", onTheNodeVolume())
	mount(&pod.Spec, "ca", "/pki/serving-ca",
		corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: caSecret}})
	pod.Spec.Containers[0].Args = append([]string{command, "--service=" + name, "--namespace=" + namespace}, args...)
	pods := c.core.CoreV1().Pods(namespace)
	c.removeLater(pod.Name, pods.Delete)
	if _, err := pods.Create(c.Context(), pod, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	c.eventually("certgen "+command, func(ctx context.Context) error {
		pod, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodSucceeded {
			log, _ := pods.GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
			err = fmt.Errorf("it is %s: %s", pod.Status.Phase, log)
		}
		return err
	})
}

// serverOnTheNode returns a pod like those of the API. It gets no requests: it has its own data,
// and lacks their labels.
func serverOnTheNode(c cluster) *corev1.Pod {
	c.Helper()
	set, err := c.core.AppsV1().StatefulSets(namespace).Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	spec := set.Spec.Template.Spec
	mount(&spec, "data", "", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	mount(&spec, "pki", "/pki", onTheNodeVolume())
	args := spec.Containers[0].Args
	for i := range args {
		args[i] = strings.Replace(args[i], "/certs/", "/pki/serving/", 1)
	}
	if !slices.Contains(args, "--tls-cert-file=/pki/serving/tls.crt") {
		c.Fatalf("got %q, want the certificate in the volume", args)
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: nodeDirectory}, Spec: spec}
}

func onTheNodeVolume() corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: nodeDirectory}}
}

// mount adds a volume, and mounts it unless at is empty.
func mount(spec *corev1.PodSpec, name, at string, source corev1.VolumeSource) {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	if at != "" {
		spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: name, MountPath: at})
	}
}
