// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// countEngines is the name under which a ResourceQuota limits engines.
var countEngines = corev1.ResourceName("count/" + engineCase.resource.GroupResource().String())

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// TestEngineQuota: a ResourceQuota limits how many engines a namespace holds. Admission in our server books what it lets
// in, at once; kube-controller-manager counts what is there when some is deleted.
func TestEngineQuota(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t, shared)
	engines := engineCase.client(t, adminConfig(t, shared), namespace)
	q := &quota{adminClient(t, shared).CoreV1().ResourceQuotas(namespace)}
	q.create(t)
	create := func(name string) error {
		_, err := engines.Create(t.Context(), engineCase.object(t, name), metav1.CreateOptions{})
		return err
	}

	// Nothing may be created: from the first refusal on, our server knows the quota.
	shared.Eventually(t, "the quota to be known to our server", patience, func(ctx context.Context) error {
		_, err := engines.Create(ctx, engineCase.object(t, "w"), dryRun)
		return exceeded(err, "w", 0)
	})
	q.limit(t, 3, engines)
	if err := create("one"); err != nil {
		t.Fatal(err)
	}
	q.expect(t, "after a create", 1)
	if _, err := engines.Create(t.Context(), engineCase.object(t, "two"), dryRun); err != nil {
		t.Errorf("create as a dry run: %v", err)
	}
	q.expect(t, "after a dry run", 1)
	for _, subresources := range [][]string{nil, {"status"}} {
		patch := []byte(`{"metadata":{"labels":{"a":"b"}},"spec":{"replicas":1},"status":{"replicas":1}}`)
		if _, err := engines.Patch(t.Context(), "one", types.MergePatchType, patch, metav1.PatchOptions{}, subresources...); err != nil {
			t.Fatal(err)
		}
	}
	q.expect(t, "after updates", 1)
	invalid := engineCase.object(t, "two")
	delete(invalid.Object, "spec")
	if _, err := engines.Create(t.Context(), invalid, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("create of an invalid engine: %v, want Invalid", err)
	}
	q.expect(t, "after a create that was invalid", 1)
	refuseByPolicy(t, namespace)
	q.expect(t, "after a create that a policy refused", 1)

	t.Run("concurrent creates", func(t *testing.T) { concurrentCreates(t, engines, q) })

	// An engine less: kube-controller-manager sees it go and counts.
	if err := engines.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, "the deleted engine to be given back", patience, func(ctx context.Context) error { return q.uses(ctx, 2) })
	shared.Eventually(t, "a create in its place", patience, func(context.Context) error { return create("one") })
	q.expect(t, "after the place was taken", 3)

	// As with built-in kinds, a create that fails in the storage is booked until kube-controller-manager counts again, which
	// may be at once.
	q.limit(t, 5, engines)
	if err := create("one"); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create of an engine that is there: %v, want AlreadyExists", err)
	}
	q.limit(t, 4, engines)
	q.expect(t, "after the next count", 3)
}

// refuseByPolicy creates an engine that a policy of the cluster refuses: quota is asked after it.
func refuseByPolicy(t *testing.T, namespace string) {
	t.Helper()
	refusing := validating{name: namespace + "-refuse", policy: check("false", "never")}
	refusing.policy.MatchConstraints = inCase(namespace, "refuse", rule("engines", onCreate))
	refusing.apply(t, shared)
	waitForPolicies(t, shared, namespace)
	_, err := newLabelled(t, shared, engineCase, namespace, "refuse").create("two", nil)
	if err := (denial{policy: refusing.name, message: "never"}).check(err); err != nil {
		t.Error(err)
	}
}

// concurrentCreates starts with one engine of three and lets eight clients create one each.
func concurrentCreates(t *testing.T, engines dynamic.ResourceInterface, q *quota) {
	const clients = 8
	errs := make([]error, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			_, errs[i] = engines.Create(t.Context(), engineCase.object(t, fmt.Sprintf("c%d", i)), metav1.CreateOptions{})
		})
	}
	group.Wait()
	created := 0
	for i, err := range errs {
		if err == nil {
			created++
		} else if err := exceeded(err, fmt.Sprintf("c%d", i), 3); err != nil {
			t.Error(err)
		}
	}
	list, err := engines.List(t.Context(), metav1.ListOptions{})
	if err != nil || created != 2 || len(list.Items) != 3 {
		t.Errorf("concurrent creates where two more fit: %d succeeded and %d engines are there, error %v; want 2 and 3", created, len(list.Items), err)
	}
	q.expect(t, "after concurrent creates", 3)
}

// quota is a ResourceQuota named q in one namespace.
type quota struct {
	client typedcorev1.ResourceQuotaInterface
}

// create makes the quota with nothing allowed, and waits until kube-controller-manager counts engines: it looks for new
// kinds every 30 s, and looks at a quota when its spec changes.
func (q *quota) create(t *testing.T) {
	t.Helper()
	obj := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
	obj.Spec.Hard = corev1.ResourceList{countEngines: apiresource.MustParse("0")}
	if _, err := q.client.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	change := 0
	shared.Eventually(t, "kube-controller-manager to count engines", patience, func(ctx context.Context) error {
		if err := q.uses(ctx, 0); err == nil {
			return nil
		}
		change++
		patch := fmt.Sprintf(`{"spec":{"hard":{"count/secrets":"%d"}}}`, change)
		updated, err := q.client.Patch(ctx, "q", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			return err
		}
		return fmt.Errorf("status %+v", updated.Status)
	})
}

// limit changes the quota and waits until it is counted and our server lets an engine in.
func (q *quota) limit(t *testing.T, most int64, engines dynamic.ResourceInterface) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"hard":{%q:"%d"}}}`, countEngines, most)
	if _, err := q.client.Patch(t.Context(), "q", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, "the limit to take effect", patience, func(ctx context.Context) error {
		got, err := q.client.Get(ctx, "q", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if hard := got.Status.Hard[countEngines]; hard.Value() != most {
			return fmt.Errorf("limit in the status %s, want %d", hard.String(), most)
		}
		_, err = engines.Create(ctx, engineCase.object(t, "one-more"), dryRun)
		return err
	})
}

// uses returns an error unless the status says that so many are used.
func (q *quota) uses(ctx context.Context, want int64) error {
	got, err := q.client.Get(ctx, "q", metav1.GetOptions{})
	if err != nil {
		return err
	}
	used, ok := got.Status.Used[countEngines]
	if !ok || used.Value() != want {
		return fmt.Errorf("status.used has %v, want %s: %d", got.Status.Used, countEngines, want)
	}
	return nil
}

// expect looks once: what admission books is there when the request is answered.
func (q *quota) expect(t *testing.T, when string, want int64) {
	t.Helper()
	if err := q.uses(t.Context(), want); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}

// exceeded returns an error unless err refuses the engine because so many are there and no more are allowed.
func exceeded(err error, name string, limit int) error {
	want := fmt.Sprintf("%s %q is forbidden: exceeded quota: q, requested: %s=1, used: %[3]s=%[4]d, limited: %[3]s=%[4]d",
		engineCase.resource.GroupResource(), name, countEngines, limit)
	if !apierrors.IsForbidden(err) || err.Error() != want {
		return fmt.Errorf("create of %s: %s, want Forbidden: %s", name, fmt.Sprint(err), want)
	}
	return nil
}
