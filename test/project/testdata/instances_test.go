package dbaas

import (
	"context"
	"encoding/json"
	"flag"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"

	"example.com/extension-apiserver/pkg/conformance"
	"example.com/extension-apiserver/pkg/envtest"

	applyv1 "git.example.org/platform/dbaas/apis/client/applyconfiguration/dbaas/v1"
	"git.example.org/platform/dbaas/apis/client/clientset/versioned"
)

var (
	stored = flag.String("stored", "", "Directory that keeps what the server stores. Default: a temporary one.")
	create = flag.Bool("create", false, "Create the sample there.")
	full   = flag.Bool("full", false, "Check the kind in each version that the server has.")
)

const server = "./cmd/dbaas-apiserver"

func sample(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	obj, err := conformance.ReadSample("objects/databaseinstance.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// TestUpdateWithoutChange checks that an update without changes has no effect, because the server
// encodes the object to the bytes that an earlier version stored.
func TestUpdateWithoutChange(t *testing.T) {
	if *stored == "" {
		t.Skip("-stored is not set")
	}
	e := envtest.New(t, envtest.Options{Server: server, Dir: *stored})
	config, err := e.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	instances := client.Resource(schema.GroupVersionResource{Group: "dbaas.example.org", Version: "v1", Resource: "databaseinstances"}).
		Namespace("default")
	if *create {
		if _, err := instances.Create(t.Context(), sample(t), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		return
	}
	before, err := instances.Get(t.Context(), "sample", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	after, err := instances.Update(t.Context(), before, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if before.GetResourceVersion() != after.GetResourceVersion() {
		t.Errorf("an update without a change: got resourceVersion %s after %s, want that what is stored stays as it is",
			after.GetResourceVersion(), before.GetResourceVersion())
	}
	after.SetAnnotations(map[string]string{"before": before.GetResourceVersion()})
	if changed, err := instances.Update(t.Context(), after, metav1.UpdateOptions{}); err != nil || changed.GetResourceVersion() == after.GetResourceVersion() {
		t.Errorf("an update with a change: got %v, and no other resourceVersion", err)
	}
}

func patch(t *testing.T, text string) (out map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestInstances checks that the kind behaves like built-in kinds in each version, that kubectl
// explains the fields of upstream types, and that generated clients apply them.
func TestInstances(t *testing.T) {
	if !*full {
		t.Skip("-full is not set")
	}
	e := envtest.New(t, envtest.Options{Server: server})
	target, err := e.ConformanceTarget()
	if err != nil {
		t.Fatal(err)
	}
	target.Status = patch(t, `{"status": {"replicas": 2, "conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": "",
		"lastTransitionTime": "2026-01-02T03:04:05Z"}]}}`)
	for version, volume := range map[string]string{"v1": "volume", "v2": "storage"} {
		t.Run(version, func(t *testing.T) {
			target := target
			target.Sample = sample(t)
			target.Sample.SetAPIVersion("dbaas.example.org/" + version)
			spec := target.Sample.Object["spec"].(map[string]any)
			size := spec["volume"]
			delete(spec, "volume")
			spec[volume] = size
			target.Change = patch(t, `{"spec": {"`+volume+`": "30Gi", "port": 5433, "settings": {"max_connections": 200}}}`)
			target.Invalid = patch(t, `{"spec": {"`+volume+`": "1Mi"}}`)
			conformance.Run(t, target)
		})
	}
	t.Run("explain", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for path, want := range map[string]string{
			"spec.template.spec.containers.livenessProbe": "FIELD: livenessProbe <Probe>",
			"spec.port":               "FIELD: port <IntOrString>",
			"spec.volume":             "FIELD: volume <Quantity>",
			"spec.users.password.key": "FIELD: key <string>",
		} {
			args := append(slices.Clone(target.Kubectl[1:]), "explain", "databaseinstances."+path, "--api-version=dbaas.example.org/v1")
			out, err := exec.CommandContext(ctx, target.Kubectl[0], args...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("explain %s: %v, got no %q in\n%s", path, err, want, out)
			}
		}
	})
	t.Run("apply", func(t *testing.T) {
		clients, err := versioned.NewForConfig(target.Config)
		if err != nil {
			t.Fatal(err)
		}
		apply := func(manager, user string) error {
			_, err := clients.DbaasV1().DatabaseInstances("default").Apply(t.Context(), applyv1.DatabaseInstance("applied", "default").
				WithSpec(applyv1.DatabaseInstanceSpec().WithEngine("MariaDB").
					WithPassword(corev1.SecretKeySelector().WithName("a").WithKey("b")).
					WithTemplate(corev1.PodTemplateSpec().WithSpec(corev1.PodSpec().
						WithContainers(corev1.Container().WithName(user).WithImage("registry.example.org/"+user)))).
					WithUsers(applyv1.DatabaseUser().WithName(user))), metav1.ApplyOptions{FieldManager: manager})
			return err
		}
		for _, user := range []string{"shop", "reports"} {
			if err := apply("team-"+user, user); err != nil {
				t.Fatal(err)
			}
		}
		got, err := clients.DbaasV1().DatabaseInstances("default").Get(t.Context(), "applied", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if users, containers := got.Spec.Users, got.Spec.Template.Spec.Containers; len(users) != 2 || len(containers) != 2 {
			t.Errorf("users %v and containers %v of two managers, want two each", users, containers)
		}
	})
}
