// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8stesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/clustertest"
)

func fakeClient(apiServices []apiregistrationv1.APIService, core ...runtime.Object) Client {
	return Client{clustertest.New(apiServices, core...)}
}

// applyDir returns a directory of certgen init and its caBundle.
func applyDir(t *testing.T) (dir string, caBundle []byte) {
	t.Helper()
	dir = t.TempDir()
	if _, err := certs.Init(t.Context(), certs.InitOptions{Dir: dir, Service: clustertest.Service,
		Now: func() time.Time { return clustertest.Now }}); err != nil {
		t.Fatal(err)
	}
	caBundle, err := os.ReadFile(filepath.Join(dir, certs.ServingDir, certs.BundleFile))
	if err != nil {
		t.Fatal(err)
	}
	return dir, caBundle
}

const (
	apply  = metav1.ManagedFieldsOperationApply
	update = metav1.ManagedFieldsOperationUpdate
)

// TestPlan checks the planned action for an existing APIService.
func TestPlan(t *testing.T) {
	dir, caBundle := applyDir(t)
	other, _ := certs.ParseBundle(clustertest.NewCA(t, "other", x509.ExtKeyUsageServerAuth).CertPEM)
	foreign := clustertest.APIService("v1.g.example.com", other.PEM())
	insecure := clustertest.APIService("v1.g.example.com", nil)
	insecure.Spec.InsecureSkipTLSVerify = true
	injected := clustertest.APIService("v1.g.example.com", nil)
	injected.Annotations = map[string]string{"cert-manager.io/inject-ca-from-secret": "x"}
	reordered := clustertest.APIService("v1.g.example.com", append([]byte("a comment\n"), caBundle...))
	both := clustertest.OwnedBy(clustertest.OwnedBy(clustertest.APIService("v1.g.example.com", caBundle),
		cluster.FieldManager, apply), "kubectl", apply)
	for name, tc := range map[string]struct {
		a       apiregistrationv1.APIService
		options Options
		action  certs.Action
		want    string // in the reason, or in the error
	}{
		"empty": {clustertest.APIService("v1.g.example.com", nil), Options{}, certs.Replaced,
			"no caBundle"},
		"right and ours": {clustertest.OwnedBy(clustertest.APIService("v1.g.example.com", caBundle),
			cluster.FieldManager, apply), Options{}, certs.Kept, "certgen owns the caBundle"},
		"the same set": {clustertest.OwnedBy(reordered, cluster.FieldManager, apply), Options{},
			certs.Kept, "certgen owns the caBundle"},
		"right and of another": {clustertest.OwnedBy(clustertest.APIService("v1.g.example.com", caBundle),
			"kubectl", apply), Options{}, certs.Replaced, "does not own the caBundle yet"},
		"ours by update": {clustertest.OwnedBy(foreign, cluster.FieldManager, update), Options{}, "",
			`found "certgen", so nothing was written`},
		"right and shared": {both, Options{}, certs.Kept,
			`together with "kubectl", so a change requires --force-conflicts`},
		"right and shared, forced": {both, Options{ForceConflicts: true}, certs.Replaced,
			`caBundle owned by "kubectl"`},
		"of another": {clustertest.OwnedBy(foreign, "kubectl", apply), Options{}, "",
			`found "kubectl", so nothing was written`},
		"of another, forced": {clustertest.OwnedBy(foreign, "kubectl", apply), Options{ForceConflicts: true}, "",
			"certgen rotate, or allow it with --replace-trust"},
		"of another, both forced": {clustertest.OwnedBy(foreign, "kubectl", apply),
			Options{ForceConflicts: true, ReplaceTrust: true}, certs.Replaced, "caBundle contains other CAs"},
		"trusts another": {clustertest.OwnedBy(foreign, cluster.FieldManager, apply), Options{}, "",
			"APIService v1.g.example.com trusts CN=other@"},
		"no PEM": {clustertest.OwnedBy(clustertest.APIService("v1.g.example.com", []byte("\n")),
			cluster.FieldManager, apply), Options{}, certs.Replaced, "caBundle contains other CAs"},
		"insecure": {insecure, Options{}, "", "certgen apply --clear-insecure"},
		"insecure, cleared": {insecure, Options{ClearInsecure: true}, certs.Replaced,
			"insecureSkipTLSVerify is true"},
		"cert-manager": {injected, Options{ForceConflicts: true}, "",
			"annotation cert-manager.io/inject-ca-from-secret"},
		"cert-manager, does not verify": {injected, Options{}, "",
			"the caBundle of cert-manager does not verify"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.options.Service, tc.options.Dir = clustertest.Service, dir
			c := fakeClient([]apiregistrationv1.APIService{tc.a})
			plan, err := c.PlanApply(t.Context(), tc.options)
			if tc.action == "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want an error with %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := plan.Items[0]; len(plan.Items) != 1 || got.Action != tc.action ||
				!strings.Contains(got.Reason, tc.want) {
				t.Errorf("got %+v, want %s with %q", plan.Items, tc.action, tc.want)
			}
		})
	}
}

// TestPlanSecret checks the planned action for an existing Secret.
func TestPlanSecret(t *testing.T) {
	dir, caBundle := applyDir(t)
	right := clustertest.OwnedBy(clustertest.APIService("v1.g.example.com", caBundle), cluster.FieldManager, apply)
	data := map[string][]byte{"extra": []byte("of somebody else")}
	for _, name := range []string{certs.CertFile, certs.KeyFile, certs.BundleFile} {
		var err error
		if data[name], err = os.ReadFile(filepath.Join(dir, certs.ServingDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	secret := func(change func(*corev1.Secret)) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "s",
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: cluster.FieldManager, Operation: apply,
				FieldsV1: metav1.NewFieldsV1(
					`{"f:data":{"f:tls.crt":{}}}`)}}}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{}}
		maps.Copy(s.Data, data)
		change(s)
		return s
	}
	otherDir, otherBundle := applyDir(t)
	otherCert, err := os.ReadFile(filepath.Join(otherDir, certs.ServingDir, certs.CertFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		there *corev1.Secret
		want  certs.Action
		text  string
	}{
		"none":  {nil, certs.Made, "not found"},
		"right": {secret(func(*corev1.Secret) {}), certs.Kept, "up to date"},
		"of another": {secret(func(s *corev1.Secret) { s.ManagedFields[0].Manager = "helm" }), certs.Replaced,
			"does not own the data yet"},
		"another pair": {secret(func(s *corev1.Secret) { s.Data[certs.CertFile] = otherCert }), certs.Replaced,
			"contains another certificate"},
		"another ca.crt": {secret(func(s *corev1.Secret) { delete(s.Data, certs.BundleFile) }), certs.Replaced,
			"contains another key or other CAs"},
		"a comment": {secret(func(s *corev1.Secret) {
			s.Data[certs.BundleFile] = append([]byte("a comment\n"), s.Data[certs.BundleFile]...)
		}), certs.Kept, "up to date"},
		"immutable, right": {secret(func(s *corev1.Secret) { s.Immutable = new(true) }), certs.Kept,
			"up to date"},
		"immutable": {secret(func(s *corev1.Secret) {
			s.Immutable = new(true)
			s.Data[certs.CertFile] = otherCert
		}), "", "the Secret is immutable"},
		"another type": {secret(func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }), "", "found Opaque"},
	} {
		t.Run(name, func(t *testing.T) {
			var core []runtime.Object
			if tc.there != nil {
				core = append(core, tc.there)
			}
			plan, err := fakeClient([]apiregistrationv1.APIService{right}, core...).PlanApply(t.Context(),
				Options{Service: clustertest.Service, Dir: dir, Secret: "s"})
			if tc.want == "" {
				if err == nil || !strings.Contains(err.Error(), tc.text) {
					t.Errorf("got %v, want an error with %q", err, tc.text)
				}
				return
			}
			if err != nil || len(plan.Items) != 2 || plan.Items[1].Path != "Secret demo/s" ||
				plan.Items[1].Action != tc.want || !strings.Contains(plan.Items[1].Reason, tc.text) {
				t.Errorf("got %+v, %v; want the APIService, then the Secret: %s, %q", plan, err, tc.want, tc.text)
			}
		})
	}
	// A key pair whose CA is not trusted yet cannot be written alone. If no API exists yet, it
	// is the only write.
	over := func(caBundle []byte) error {
		_, err := fakeClient([]apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com", caBundle)},
			secret(func(s *corev1.Secret) { s.Data[certs.CertFile] = otherCert })).
			PlanApply(t.Context(), Options{Service: clustertest.Service, Dir: dir, Secret: "s", KeepTrust: true})
		return err
	}
	if err := over(otherBundle); err == nil || !strings.Contains(err.Error(), "must before the Secret changes") {
		t.Errorf("got %v, want trust first", err)
	}
	if err := over(clustertest.NewCA(t, "other", x509.ExtKeyUsageServerAuth).CertPEM); err != nil {
		t.Errorf("where the existing key pair is not trusted either: got %v, want it replaced", err)
	}
	plan, err := fakeClient(nil).PlanApply(t.Context(), Options{Service: clustertest.Service, Dir: dir, Secret: "s"})
	if err != nil || len(plan.Items) != 1 || len(plan.Items[0].Notes) != 1 {
		t.Errorf("no APIService: got %+v, %v; want the Secret and a note", plan, err)
	}
	if _, err := fakeClient(nil).PlanApply(t.Context(), Options{Service: clustertest.Service, Dir: dir}); err == nil {
		t.Error("nothing to apply: got no error")
	}
}

// TestPlanRejectsInvalidInput: PlanApply rejects invalid options and directories that would not
// work.
func TestPlanRejectsInvalidInput(t *testing.T) {
	dir, _ := applyDir(t)
	other, _ := applyDir(t)
	// changed copies the directory and replaces one file with that of the other.
	changed := func(file string) string {
		to := filepath.Join(t.TempDir(), "pki")
		if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(other, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, file), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	for name, tc := range map[string]struct {
		options Options
		want    string
	}{
		"another key": {Options{Service: clustertest.Service, Dir: changed("serving/tls.key"), Secret: "s"}, "C06"},
		"another CA": {Options{Service: clustertest.Service, Dir: changed("serving/ca.crt")},
			"signed by unknown authority"},
		"all wrong": {Options{Secret: "S"}, "secret"},
		"not there": {Options{Service: clustertest.Service, Dir: filepath.Join(dir, "x")}, "set --dir to its directory"},
		"another Service": {Options{Service: certs.Service{Name: "gadgets", Namespace: "demo"}, Dir: dir},
			"not gadgets.demo.svc"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := fakeClient(nil).PlanApply(t.Context(), tc.options); err == nil ||
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
	if err := (Options{Secret: "S"}).Validate(); len(certs.Flatten(err)) != 4 {
		t.Errorf("got %v, want all four", err)
	}
	ca := clustertest.NewCA(t, "ca", x509.ExtKeyUsageServerAuth)
	registered := []apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com", ca.CertPEM)}
	if err := fakeClient(registered).ChangeCABundle(t.Context(), clustertest.Service, nil,
		certs.Bundle{ca.Certificate}); err == nil || !strings.Contains(err.Error(),
		"v1.g.example.com: plan caBundle: expected a valid CA, found none") {
		t.Errorf("an empty caBundle: got %v, want it refused", err)
	}
	leaf := clustertest.NewServing(t, ca, "widgets.demo.svc").Certificate
	if err := fakeClient(registered).ChangeCABundle(t.Context(), clustertest.Service, certs.Bundle{leaf},
		nil); err == nil || !strings.Contains(err.Error(), "expected CAs only") {
		t.Errorf("a leaf as caBundle: got %v, want it refused", err)
	}
}

// TestPlanWrongClock: with a wrong clock, the error refers to the clock, not to the certificate
// that looks expired.
func TestPlanWrongClock(t *testing.T) {
	dir, caBundle := applyDir(t)
	c := fakeClient([]apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com", caBundle)})
	c.Now = func() time.Time { return clustertest.Now.Add(certs.LeafLifetime + time.Hour) }
	if _, err := c.PlanApply(t.Context(), Options{Service: clustertest.Service, Dir: dir}); err == nil ||
		!strings.Contains(err.Error(), "the clock of this machine") {
		t.Errorf("got %v, want the clock named", err)
	}
}

// TestApplyDryRunsFirst: if the server rejects one write, Apply changes nothing. Every write
// specifies the field manager.
func TestApplyDryRunsFirst(t *testing.T) {
	dir, _ := applyDir(t)
	for _, tc := range []struct {
		refused       string // the APIService
		inDryRun      bool
		written, done int
	}{
		{"", false, 2, 2},
		{"v2.g.example.com", true, 0, 0},
		{"v2.g.example.com", false, 2, 1}, // for example, because it changed after the dry run
	} {
		c := fakeClient([]apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com", nil),
			clustertest.APIService("v2.g.example.com", nil)})
		var tried, written int
		c.Aggregator.(*aggregatorfake.Clientset).PrependReactor("patch", "apiservices",
			func(action k8stesting.Action) (bool, runtime.Object, error) {
				patch := action.(k8stesting.PatchActionImpl)
				if patch.PatchOptions.FieldManager != cluster.FieldManager ||
					!strings.Contains(string(patch.Patch), `"uid":"uid-of-x"`) {
					t.Errorf("got manager %q and patch %s", patch.PatchOptions.FieldManager, patch.Patch)
				}
				if len(patch.PatchOptions.DryRun) > 0 {
					tried++
				} else {
					written++
				}
				if patch.Name == tc.refused && (len(patch.PatchOptions.DryRun) > 0) == tc.inDryRun {
					return true, nil, errors.New("refused")
				}
				return true, &apiregistrationv1.APIService{}, nil
			})
		plan, err := c.PlanApply(t.Context(), Options{Service: clustertest.Service, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		err = c.Apply(t.Context(), plan)
		if (err == nil) != (tc.refused == "") || tried != 2 || written != tc.written || len(plan.Items) != tc.done {
			t.Errorf("%+v: got %v, %d tried, %d written, %d reported, want all tried", tc, err, tried, written,
				len(plan.Items))
		}
	}
}

// TestPlanAndApply: after a change between plan and write, PlanAndApply plans and shows again.
// It does not retry a conflict with another field manager.
func TestPlanAndApply(t *testing.T) {
	resource := schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}
	others := apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict,
		Field: ".spec.caBundle"}}, "conflict with helm")
	for name, tc := range map[string]struct {
		refusal   error
		refusals  int
		wantPlans int
		wantError bool
	}{
		"changed five times": {apierrors.NewConflict(resource, "v1.g.example.com",
			errors.New("the object has been modified")), 5, 6, false},
		"another manager": {others, 1, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := applyDir(t)
			c := fakeClient([]apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com", nil)})
			refusals, plans := tc.refusals, 0
			c.Aggregator.(*aggregatorfake.Clientset).PrependReactor("patch", "apiservices",
				func(k8stesting.Action) (bool, runtime.Object, error) {
					if refusals > 0 {
						refusals--
						return true, nil, tc.refusal
					}
					return true, &apiregistrationv1.APIService{}, nil
				})
			_, err := c.PlanAndApply(t.Context(), Options{Service: clustertest.Service, Dir: dir},
				func(*Plan) { plans++ })
			if (err != nil) != tc.wantError || plans != tc.wantPlans {
				t.Errorf("got %v and %d plans, want an error %v and %d plans", err, plans, tc.wantError, tc.wantPlans)
			}
		})
	}
}

// TestPlanAndApplyReports: the report contains the writes before another object changed,
// whatever the result of later attempts.
func TestPlanAndApplyReports(t *testing.T) {
	dir, caBundle := applyDir(t)
	first, second := clustertest.APIService("v1.g.example.com", nil), clustertest.APIService("v2.g.example.com", nil)
	for name, tc := range map[string]struct {
		then error // result of the second attempt to write the second one
		want []certs.Item
	}{
		"refused": {errors.New("forbidden"), []certs.Item{{Path: "APIService v1.g.example.com", Action: certs.Replaced,
			Reason: "no caBundle"}}},
		"written": {nil, []certs.Item{{Path: "APIService v1.g.example.com", Action: certs.Replaced,
			Reason: "no caBundle"},
			{Path: "APIService v2.g.example.com", Action: certs.Replaced, Reason: "no caBundle"}}},
	} {
		c := fakeClient(nil)
		wrote := false
		aggregator := c.Aggregator.(*aggregatorfake.Clientset)
		aggregator.PrependReactor("list", "apiservices", func(k8stesting.Action) (bool, runtime.Object, error) {
			if wrote {
				return true, &apiregistrationv1.APIServiceList{Items: []apiregistrationv1.APIService{
					clustertest.OwnedBy(clustertest.APIService(first.Name, caBundle), cluster.FieldManager, apply),
					second}}, nil
			}
			return true, &apiregistrationv1.APIServiceList{Items: []apiregistrationv1.APIService{first, second}}, nil
		})
		aggregator.PrependReactor("patch", "apiservices", func(action k8stesting.Action) (bool, runtime.Object, error) {
			patch := action.(k8stesting.PatchActionImpl)
			switch {
			case patch.Name == second.Name && wrote:
				return true, &apiregistrationv1.APIService{}, tc.then
			case patch.Name == second.Name && len(patch.PatchOptions.DryRun) == 0:
				wrote = true
				return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "apiservices"}, second.Name,
					errors.New("the object has been modified"))
			}
			return true, &apiregistrationv1.APIService{}, nil
		})
		plan, err := c.PlanAndApply(t.Context(), Options{Service: clustertest.Service, Dir: dir}, func(*Plan) {})
		if (err != nil) != (tc.then != nil) {
			t.Errorf("%s: got %v", name, err)
		}
		if diff := cmp.Diff(tc.want, plan.Items); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

// TestChangeCABundle: CAs of other owners are kept, and a write fails if the APIService changed
// since it was read.
func TestChangeCABundle(t *testing.T) {
	other, old, next := clustertest.NewCA(t, "other", x509.ExtKeyUsageServerAuth),
		clustertest.NewCA(t, "old", x509.ExtKeyUsageServerAuth),
		clustertest.NewCA(t, "next", x509.ExtKeyUsageServerAuth)
	a := clustertest.APIService("v1.g.example.com", (certs.Bundle{other.Certificate, old.Certificate}).PEM())
	a.ResourceVersion = "7"
	for name, tc := range map[string]struct{ add, remove, want certs.Bundle }{
		"trust": {certs.Bundle{next.Certificate}, nil, certs.Bundle{other.Certificate, old.Certificate,
			next.Certificate}},
		"distrust": {nil, certs.Bundle{old.Certificate}, certs.Bundle{other.Certificate}},
		"abort":    {nil, certs.Bundle{next.Certificate}, certs.Bundle{other.Certificate, old.Certificate}},
	} {
		t.Run(name, func(t *testing.T) {
			c := fakeClient([]apiregistrationv1.APIService{a})
			var patches []string
			c.Aggregator.(*aggregatorfake.Clientset).PrependReactor("patch", "apiservices",
				func(action k8stesting.Action) (bool, runtime.Object, error) {
					patches = append(patches, string(action.(k8stesting.PatchAction).GetPatch()))
					return true, &apiregistrationv1.APIService{}, nil
				})
			if err := c.ChangeCABundle(t.Context(), clustertest.Service, tc.add, tc.remove); err != nil {
				t.Fatal(err)
			}
			if len(patches) != 2 {
				t.Fatalf("got %d patches, want a dry run and a write", len(patches))
			}
			var got apiregistrationv1.APIService
			if err := json.Unmarshal([]byte(patches[1]), &got); err != nil {
				t.Fatal(err)
			}
			if !sameSet(got.Spec.CABundle, tc.want) || got.ResourceVersion != "7" || got.UID != a.UID {
				t.Errorf("got %d CAs, resourceVersion %q, uid %q; want %d, 7, %s",
					len(certs.LenientBundle(got.Spec.CABundle)), got.ResourceVersion, got.UID, len(tc.want), a.UID)
			}
		})
	}
}

// TestChangeCABundleInsecure: an APIService with insecureSkipTLSVerify is an error when a CA is
// added, and is skipped when one is removed.
func TestChangeCABundleInsecure(t *testing.T) {
	old, next := clustertest.NewCA(t, "old", x509.ExtKeyUsageServerAuth),
		clustertest.NewCA(t, "next", x509.ExtKeyUsageServerAuth)
	insecure := clustertest.APIService("v2.g.example.com", nil)
	insecure.Spec.InsecureSkipTLSVerify = true
	c := fakeClient([]apiregistrationv1.APIService{clustertest.APIService("v1.g.example.com",
		(certs.Bundle{old.Certificate, next.Certificate}).PEM()), insecure})
	var patched []string
	c.Aggregator.(*aggregatorfake.Clientset).PrependReactor("patch", "apiservices",
		func(action k8stesting.Action) (bool, runtime.Object, error) {
			patched = append(patched, action.(k8stesting.PatchAction).GetName())
			return true, &apiregistrationv1.APIService{}, nil
		})
	for name, err := range map[string]error{
		"before": c.MayChangeTrust(t.Context(), clustertest.Service),
		"add":    c.ChangeCABundle(t.Context(), clustertest.Service, certs.Bundle{next.Certificate}, nil),
	} {
		if err == nil || !strings.Contains(err.Error(),
			"APIService v2.g.example.com: insecureSkipTLSVerify is true") {
			t.Errorf("%s: got %v, want it refused", name, err)
		}
	}
	patched = nil
	if err := c.ChangeCABundle(t.Context(), clustertest.Service, nil, certs.Bundle{next.Certificate}); err != nil ||
		!slices.Equal(patched, []string{"v1.g.example.com", "v1.g.example.com"}) {
		t.Errorf("remove: got %v, and writes to %q; want v1 tried and written", err, patched)
	}
}

// TestTakeOverCABundles: other managers no longer own the caBundles, whose CAs do not change. A
// caBundle of an injector is an error.
func TestTakeOverCABundles(t *testing.T) {
	old := clustertest.NewCA(t, "old", x509.ExtKeyUsageServerAuth)
	owned := clustertest.OwnedBy(clustertest.APIService("v1.g.example.com", old.CertPEM), "helm", update)
	c := fakeClient([]apiregistrationv1.APIService{owned, clustertest.APIService("v2.g.example.com", old.CertPEM)})
	var forced []string
	c.Aggregator.(*aggregatorfake.Clientset).PrependReactor("patch", "apiservices",
		func(action k8stesting.Action) (bool, runtime.Object, error) {
			patch := action.(k8stesting.PatchActionImpl)
			var got apiregistrationv1.APIService
			if err := json.Unmarshal(patch.GetPatch(), &got); err != nil ||
				!sameSet(got.Spec.CABundle, certs.Bundle{old.Certificate}) {
				t.Errorf("got the patch %s, %v; want the existing CA", patch.GetPatch(), err)
			}
			if *patch.PatchOptions.Force && patch.PatchOptions.DryRun == nil {
				forced = append(forced, patch.GetName())
			}
			return true, &apiregistrationv1.APIService{}, nil
		})
	items, err := c.TakeOverCABundles(t.Context(), clustertest.Service)
	if err != nil || len(items) != 1 || !slices.Contains(forced, "v1.g.example.com") ||
		slices.Contains(forced, "v2.g.example.com") {
		t.Errorf("got %+v, %v, and forced %q; want v1 taken over alone", items, err, forced)
	}
	owned.Annotations = map[string]string{"cert-manager.io/inject-ca-from": "demo/widgets"}
	if _, err := fakeClient([]apiregistrationv1.APIService{owned}).TakeOverCABundles(t.Context(),
		clustertest.Service); err == nil {
		t.Error("with an injector: it was taken over, want it refused")
	}
}

// TestChangeCABundleOwned: if another manager owns one caBundle, CAs are added to the other ones
// and removed from none.
func TestChangeCABundleOwned(t *testing.T) {
	old, next := clustertest.NewCA(t, "old", x509.ExtKeyUsageServerAuth),
		clustertest.NewCA(t, "next", x509.ExtKeyUsageServerAuth)
	both := (certs.Bundle{old.Certificate, next.Certificate}).PEM()
	for name, tc := range map[string]struct {
		caBundle    []byte
		add, remove certs.Bundle
		patched     bool
	}{
		"add":    {(certs.Bundle{old.Certificate}).PEM(), certs.Bundle{next.Certificate}, nil, true},
		"remove": {both, nil, certs.Bundle{old.Certificate}, false},
		"both": {(certs.Bundle{old.Certificate}).PEM(), certs.Bundle{next.Certificate},
			certs.Bundle{old.Certificate}, false},
	} {
		c := fakeClient([]apiregistrationv1.APIService{
			clustertest.OwnedBy(clustertest.APIService("v1.g.example.com", tc.caBundle), "helm",
				metav1.ManagedFieldsOperationApply),
			clustertest.APIService("v2.g.example.com", tc.caBundle),
		})
		var patched []string
		c.Aggregator.(*aggregatorfake.Clientset).PrependReactor("patch", "apiservices",
			func(action k8stesting.Action) (bool, runtime.Object, error) {
				patched = append(patched, action.(k8stesting.PatchAction).GetName())
				return true, &apiregistrationv1.APIService{}, nil
			})
		err := c.ChangeCABundle(t.Context(), clustertest.Service, tc.add, tc.remove)
		if _, owned := errors.AsType[*cluster.OwnedError](err); !owned ||
			slices.Contains(patched, "v1.g.example.com") || (len(patched) > 0) != tc.patched {
			t.Errorf("%s: got %v, and writes to %q; want it refused, v1 left alone and v2 written: %t", name, err,
				patched, tc.patched)
		}
	}
}
