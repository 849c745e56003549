// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/internal/scripttest"
)

// scheduler is the name of the second scheduler, of its namespace and of most of its objects.
const scheduler = "second-scheduler"

// TestScheduler follows docs/operate/second-scheduler.md. A kube-scheduler that protects its port
// as the extension API server does, with exactly the permissions of that page, schedules the
// extension API server.
func TestScheduler(t *testing.T) {
	c := newCluster(t)
	p := newPage(c, "docs/operate/second-scheduler.md")
	for _, step := range []struct {
		name string
		run  func(page)
	}{
		{"install it", installed},
		{"a pod with a volume", schedulesVolume},
		{"read its metrics", metrics},
		{"let it schedule the server", schedulesServer},
		{"what each permission is for", withoutPermissions},
		{"a role of its own", ownRole},
	} {
		// Each step depends on the one before.
		if !t.Run(step.name, func(t *testing.T) {
			p := p
			p.T = t
			step.run(p)
		}) {
			break
		}
	}
	removed(p)
}

// installed applies the manifest with the image that the page's command prints, and waits as the
// page does.
func installed(p page) {
	s := p.section("Install it")
	commands := s.commands(2)
	manifest := s.manifest()
	image := regexp.MustCompile(`(?m)^( +image: ).*$`)
	if found := image.FindAllString(manifest, -1); len(found) != 1 {
		p.Fatalf("%s: got the images %q in the manifest, want 1", p.path, found)
	}
	manifest = image.ReplaceAllString(manifest, "${1}"+strings.TrimSpace(p.run(commands[0])))
	scripttest.Write(p.T, filepath.Join(p.dir, "second-scheduler.yaml"), manifest)
	p.run("kubectl apply -f second-scheduler.yaml")
	scripttest.Shell(p.T, filepath.Join("..", ".."), "go build -o "+filepath.Join(p.dir, "bin",
		"certgen")+" ./cmd/certgen")
	p.run(commands[1])
	holdsLease(p)
}

// holdsLease waits until the scheduler is ready, is the only one, and holds its Lease. It returns
// the pod.
func holdsLease(p page) (holder corev1.Pod) {
	p.Helper()
	p.eventually("the second scheduler to hold its Lease", func(ctx context.Context) error {
		pods, err := p.core.CoreV1().Pods(scheduler).List(ctx,
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + scheduler})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("got %d pods, want 1", len(pods.Items))
		}
		holder = pods.Items[0]
		lease, err := p.core.CoordinationV1().Leases(scheduler).Get(ctx, scheduler, metav1.GetOptions{})
		if err != nil {
			return err
		}
		statuses := holder.Status.ContainerStatuses
		if id := lease.Spec.HolderIdentity; id == nil || !strings.HasPrefix(*id, holder.Name+"_") ||
			len(statuses) != 1 || !statuses[0].Ready {
			return fmt.Errorf("pod %s has %+v, and the Lease %+v", holder.Name, statuses, lease.Spec)
		}
		return nil
	})
	return holder
}

// schedulesVolume checks that the scheduler places a pod whose volume is created on the chosen
// node.
func schedulesVolume(p page) {
	const pod = "with-volume"
	deployment, err := p.core.AppsV1().Deployments(scheduler).Get(p.Context(), scheduler, metav1.GetOptions{})
	if err != nil {
		p.Fatal(err)
	}
	// A program of an image that is already on the node, in a container that is restricted in the
	// same way.
	template := deployment.Spec.Template.Spec
	container := corev1.Container{
		Name: "main", Image: template.Containers[0].Image, Command: []string{"kube-scheduler", "--version"},
		SecurityContext: template.Containers[0].SecurityContext,
	}
	spec := corev1.PodSpec{
		SchedulerName: scheduler, RestartPolicy: corev1.RestartPolicyNever, SecurityContext: template.SecurityContext,
		Containers: []corev1.Container{container},
	}
	mount(&spec, "data", "/data",
		corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pod}})
	// Both are deleted with the namespace.
	if _, err := p.core.CoreV1().PersistentVolumeClaims(scheduler).Create(p.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: pod},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}, metav1.CreateOptions{}); err != nil {
		p.Fatal(err)
	}
	created, err := p.core.CoreV1().Pods(scheduler).Create(p.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		p.Fatal(err)
	}
	p.eventually("the pod with a volume", func(ctx context.Context) error {
		now, err := p.core.CoreV1().Pods(scheduler).Get(ctx, pod, metav1.GetOptions{})
		if err == nil && now.Status.Phase != corev1.PodSucceeded {
			err = fmt.Errorf("it is %s: %+v %+v", now.Status.Phase, now.Status.Conditions, now.Status.ContainerStatuses)
		}
		return err
	})
	scheduledBy(p.cluster, created, scheduler)
}

// scheduledBy waits for the event that names the scheduler which chose the pod's node.
func scheduledBy(c cluster, pod *corev1.Pod, want string) {
	c.Helper()
	c.eventually("the event about pod "+pod.Name, func(ctx context.Context) error {
		list, err := c.core.EventsV1().Events(pod.Namespace).List(ctx,
			metav1.ListOptions{FieldSelector: "reason=Scheduled"})
		if err != nil {
			return err
		}
		var event *eventsv1.Event
		for i := range list.Items {
			if list.Items[i].Regarding.UID == pod.UID {
				event = &list.Items[i]
			}
		}
		if event == nil {
			return fmt.Errorf("none of %d events is about it", len(list.Items))
		}
		if event.ReportingController != want {
			return fmt.Errorf("the scheduler was %q, want %q", event.ReportingController, want)
		}
		return nil
	})
}

// metrics reads the metrics with the page's commands, and checks that the scheduler counted the
// earlier pod.
func metrics(p page) {
	commands := p.section("Read its metrics").commands(2)
	p.run(commands[0])
	p.awaitPermission("system:serviceaccount:"+scheduler+":monitoring", authorizationv1.SubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	})
	port := freePort(p.cluster)
	p.runForCodes(strings.NewReplacer("10259:10259", port+":10259", "$host:10259", "$host:"+port).Replace(commands[1]))
	text, err := os.ReadFile(filepath.Join(p.dir, "metrics.txt"))
	if want := `scheduler_schedule_attempts_total{profile="second-scheduler",result="scheduled"}`; err != nil ||
		!strings.Contains(string(text), want) {
		p.Errorf("got %d bytes, %v, want %s in it", len(text), err, want)
	}
}

// schedulesServer deploys the overlay of the page, and later restores the previous deployment.
func schedulesServer(p page) {
	s := p.section("Schedule your server with it")
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		p.Fatal(err)
	}
	overlay := p.TempDir()
	// kustomize rejects absolute paths.
	kind, err := filepath.Rel(overlay, filepath.Join(root, "sample", "manifests", "kind"))
	if err != nil {
		p.Fatal(err)
	}
	scripttest.Write(p.T, filepath.Join(overlay, "kustomization.yaml"),
		strings.Replace(s.manifest(), "../kind", kind, 1))
	p.Cleanup(func() {
		p.script("deploy.sh")
		serverPod(p, corev1.DefaultSchedulerName)
	})
	p.script("deploy.sh", "OVERLAY="+overlay)
	pod := serverPod(p, scheduler)
	identity(p.cluster)
	scheduledBy(p.cluster, pod, scheduler)
	out := p.run(s.commands(1)[0])
	last := strings.Fields(out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:])
	if len(last) != 2 || last[0] != pod.Name || last[1] != scheduler {
		p.Errorf("got the events\n%s\nwant the last one to say %s %s", out, pod.Name, scheduler)
	}
}

// serverPod returns the pod of the extension API server, which must name the given scheduler. It
// can run in a cleanup.
func serverPod(p page, schedulerName string) *corev1.Pod {
	p.Helper()
	pod, err := p.core.CoreV1().Pods(namespace).Get(context.WithoutCancel(p.Context()), name+"-0", metav1.GetOptions{})
	if err != nil {
		p.Fatal(err)
	}
	if got := pod.Spec.SchedulerName; got != schedulerName {
		p.Fatalf("pod %s: got the schedulerName %q, want %q", pod.Name, got, schedulerName)
	}
	return pod
}

// removed runs the page's commands for removal, and checks that they leave nothing.
func removed(p page) {
	p.Helper()
	p.run(p.section("Remove it").commands(1)[0])
	p.eventually("nothing of the second scheduler to be left", func(ctx context.Context) error {
		objects, err := p.snapshot(ctx)
		if err != nil {
			return err
		}
		var left []error
		for object := range objects {
			if strings.Contains(object, scheduler) {
				left = append(left, errors.New(object))
			}
		}
		return errors.Join(left...)
	})
}
