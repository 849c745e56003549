package dbaas

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/conformance"
	"example.com/extension-apiserver/pkg/envtest"
)

var (
	instances = schema.GroupVersionResource{Group: "dbaas.example.org", Version: "v1", Resource: "databaseinstances"}
	runs      = instances.GroupVersion().WithResource("backupruns")
)

func read(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	obj, err := conformance.ReadSample("objects/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func client(t *testing.T, config *rest.Config) dynamic.Interface {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func rule(resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"dbaas.example.org"}, Resources: []string{resource}, Verbs: verbs}
}

// wantForbidden checks that a request is forbidden, and that the error states the reason.
func wantForbidden(t *testing.T, what string, err error, because string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), because) {
		t.Errorf("%s: got %v, want it forbidden: %s", what, err, because)
	}
}

// TestBackups checks that an action, a log, an admission plugin that reads other objects, and a
// field that needs its own verb work through kube-apiserver, and that each needs its permission.
func TestBackups(t *testing.T) {
	e := envtest.New(t, envtest.Options{Server: "./cmd/dbaas-apiserver"})
	adminConfig, err := e.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	admin := client(t, adminConfig)
	if _, err := admin.Resource(instances).Namespace("default").Create(t.Context(), read(t, "databaseinstance"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	run, err := admin.Resource(runs).Namespace("default").Create(t.Context(), read(t, "backuprun"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if owners := run.GetOwnerReferences(); len(owners) != 1 || owners[0].Name != "sample" {
		t.Errorf("the owners are %v, want the database", owners)
	}
	other := read(t, "backuprun")
	other.SetName("other")
	if err := unstructured.SetNestedField(other.Object, "none", "spec", "instance"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Resource(runs).Namespace("default").Create(t.Context(), other, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a run of no database: got %v, want it invalid", err)
	}
	writer := client(t, e.User(t, "run-writer", rule("backupruns", "*")))
	for _, of := range []string{"sample", "none"} { // the error does not reveal which database exists
		other.SetName("of-" + of)
		if err := unstructured.SetNestedField(other.Object, of, "spec", "instance"); err != nil {
			t.Fatal(err)
		}
		_, err := writer.Resource(runs).Namespace("default").Create(t.Context(), other, metav1.CreateOptions{})
		wantForbidden(t, "a run of the database "+of+" that its user may not get", err, `cannot get resource "databaseinstances"`)
	}
	t.Run("log", func(t *testing.T) { t.Parallel(); testLog(t, e) })
	t.Run("cancel", func(t *testing.T) { testCancel(t, e) })
	t.Run("promote", func(t *testing.T) { testPromote(t, e) })
	t.Run("quota", func(t *testing.T) { testQuota(t, e, adminConfig) })
	t.Run("conformance", func(t *testing.T) { testConformance(t, e) })
}

func testCancel(t *testing.T, e *envtest.Environment) {
	cancel := func(user dynamic.Interface, reason string) error {
		body := map[string]any{"apiVersion": "dbaas.example.org/v1", "kind": "CancelBackupRun", "metadata": map[string]any{"name": "sample"}}
		if reason != "" {
			body["reason"] = reason
		}
		_, err := user.Resource(runs).Namespace("default").Create(t.Context(), &unstructured.Unstructured{Object: body}, metav1.CreateOptions{}, "cancel")
		return err
	}
	writer := client(t, e.User(t, "writer", rule("backupruns", "*"), rule("backupruns/status", "*")))
	wantForbidden(t, "cancel by one who may write runs", cancel(writer, "late"), `cannot create resource "backupruns/cancel"`)
	operator := client(t, e.User(t, "operator", rule("backupruns/cancel", "create"), rule("backupruns", "get")))
	if err := cancel(operator, ""); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "reason") {
		t.Errorf("cancel without a reason: got %v, want it invalid", err)
	}
	if err := cancel(operator, "late"); err != nil {
		t.Fatal(err)
	}
	run, err := operator.Resource(runs).Namespace("default").Get(t.Context(), "sample", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if status := fmt.Sprint(run.Object["status"]); status != "map[message:late phase:Cancelled]" || run.GetGeneration() != 1 {
		t.Errorf("the status is %s and the generation %d, want it cancelled, and 1", status, run.GetGeneration())
	}
	if err := cancel(operator, "again"); !apierrors.IsConflict(err) {
		t.Errorf("cancel again: got %v, want a conflict", err)
	}
}

// testLog checks that a log can be followed for longer than kube-apiserver's timeout of other
// requests, and that it ends when the permission is removed.
func testLog(t *testing.T, e *envtest.Environment) {
	path := "/apis/dbaas.example.org/v1/namespaces/default/backupruns/sample/log"
	get := func(config *rest.Config, query string) *http.Response {
		t.Helper()
		c, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	if resp := get(e.User(t, "looker", rule("backupruns", "*")), ""); resp.StatusCode != http.StatusForbidden {
		t.Errorf("the log by one who may read runs: got %s, want 403", resp.Status)
	}
	reader := e.User(t, "log-reader")
	admins, err := e.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	role, err := admins.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "log"},
		Rules: []rbacv1.PolicyRule{rule("backupruns/log", "get")}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "log"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "log-reader"}}}
	if _, err := admins.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, "the permission", envtest.WaitTimeout, func(context.Context) error {
		if resp := get(reader, ""); resp.StatusCode != http.StatusOK {
			return fmt.Errorf("got %s", resp.Status)
		}
		return nil
	})
	if resp := get(reader, "?everySeconds=often"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("an option that is not a number: got %s, want 400", resp.Status)
	}
	resp := get(reader, "?follow=true&everySeconds=10")
	lines, began := bufio.NewScanner(resp.Body), time.Now()
	for want := 1; want <= 14; want++ { // 130 s
		if !lines.Scan() || lines.Text() != fmt.Sprintf("backup of sample: line %d", want) {
			t.Fatalf("after %s: got %q, %v, want line %d", time.Since(began), lines.Text(), lines.Err(), want)
		}
	}
	if took := time.Since(began); took < 2*time.Minute {
		t.Errorf("14 lines came within %s, want them each ten seconds", took)
	}
	if err := admins.RbacV1().ClusterRoleBindings().Delete(t.Context(), "log", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for removed := time.Now(); lines.Scan(); {
		if time.Since(removed) > time.Minute {
			t.Fatal("the log continues for a minute after the permission was removed")
		}
	}
	if lines.Err() == nil {
		t.Error("the log ends as if it were whole")
	}
}

func testPromote(t *testing.T, e *envtest.Environment) {
	scale := func(user dynamic.Interface, subresources ...string) error {
		_, err := user.Resource(instances).Namespace("default").Patch(t.Context(), "sample", types.MergePatchType,
			[]byte(`{"spec":{"replicas":4}}`), metav1.PatchOptions{}, subresources...)
		return err
	}
	rules := []rbacv1.PolicyRule{rule("databaseinstances", "get", "patch", "create"), rule("databaseinstances/scale", "get", "patch")}
	editor := client(t, e.User(t, "editor", rules...))
	const because = `cannot promote resource "databaseinstances"`
	wantForbidden(t, "four copies", scale(editor), because)
	wantForbidden(t, "four copies by scale", scale(editor, "scale"), because)
	created := read(t, "databaseinstance")
	created.SetName("large")
	if err := unstructured.SetNestedField(created.Object, int64(4), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	_, err := editor.Resource(instances).Namespace("default").Create(t.Context(), created, metav1.CreateOptions{})
	wantForbidden(t, "a database with four copies", err, because)
	promoter := client(t, e.User(t, "promoter", append(rules, rule("databaseinstances", "promote"))...))
	if err := scale(promoter, "scale"); err != nil {
		t.Error(err)
	}
	if _, err := editor.Resource(instances).Namespace("default").Patch(t.Context(), "sample", types.MergePatchType,
		[]byte(`{"spec":{"volume":"40Gi"}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("another field of a database with four copies: %v", err)
	}
}

// testQuota checks that the plugin reads ConfigMaps and databases. Without its permission, the
// server reports this and rejects writes.
func testQuota(t *testing.T, e *envtest.Environment, adminConfig *rest.Config) {
	clients, err := kubernetes.NewForConfig(adminConfig)
	if err != nil {
		t.Fatal(err)
	}
	namespace := "limited"
	if _, err := clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := clients.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dbaas-quota"},
		Data: map[string]string{"instances": "1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create := func(ctx context.Context, name string) error {
		obj := read(t, "databaseinstance")
		obj.SetName(name)
		_, err := client(t, adminConfig).Resource(instances).Namespace(namespace).Create(ctx, obj, metav1.CreateOptions{})
		return err
	}
	e.Eventually(t, "the first database", envtest.WaitTimeout, func(ctx context.Context) error {
		if err := create(ctx, "first"); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	})
	wantForbidden(t, "a second database", create(t.Context(), "second"), "the namespace may have 1 databases")
	bindings := clients.RbacV1().ClusterRoleBindings()
	name := "extension-apiserver-hooks"
	binding, err := bindings.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bindings.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := e.RestartServer(t.Context(), e.Servers[0]); err == nil || !strings.Contains(err.Error(), "list configmaps (for InstanceQuota)") {
		t.Errorf("a server without the permission of its plugin: got %v, want an error that has it", err)
	}
	binding.ResourceVersion, binding.UID = "", ""
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, "writes, with the permission", envtest.WaitTimeout, func(ctx context.Context) error {
		if err := create(ctx, "second"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "may have 1") {
			return fmt.Errorf("got %v, want the quota", err)
		}
		return nil
	})
}

func testConformance(t *testing.T, e *envtest.Environment) {
	target, err := e.ConformanceTarget()
	if err != nil {
		t.Fatal(err)
	}
	target.Sample = read(t, "backuprun")
	target.Change = map[string]any{"spec": map[string]any{"keepDays": 5}}
	target.Invalid = map[string]any{"spec": map[string]any{"keepDays": 0}}
	target.Status = map[string]any{"status": map[string]any{"phase": "Running"}}
	target.Actions = map[string]map[string]any{"cancel": {"reason": "late"}}
	target.Permissions = []rbacv1.PolicyRule{rule("databaseinstances", "get")}
	target.Prepare = func(ctx context.Context, config *rest.Config, namespace string) error {
		c, err := dynamic.NewForConfig(config)
		if err == nil {
			_, err = c.Resource(instances).Namespace(namespace).Create(ctx, read(t, "databaseinstance"), metav1.CreateOptions{})
		}
		return err
	}
	conformance.Run(t, target)
}
