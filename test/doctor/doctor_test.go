// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/doctor"
	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/envtest"
)

// The limits of a diagnosis.
const (
	maxDuration = 10 * time.Second
	maxRequests = 60 // of a healthy cluster with five APIServices
)

func diagnose(ctx context.Context, config *rest.Config, later time.Duration, names ...string) (*doctor.Report, error) {
	return diagnoseWith(ctx, config, doctor.Options{APIServices: names,
		Now: func() time.Time { return time.Now().Add(later) }})
}

func diagnoseWith(ctx context.Context, config *rest.Config, options doctor.Options) (*doctor.Report, error) {
	began := time.Now()
	facts, err := doctor.Collect(ctx, config, options)
	if err != nil {
		return nil, err
	}
	if took := time.Since(began); took > maxDuration {
		return nil, fmt.Errorf("the diagnosis took %s", took)
	}
	return doctor.NewReport(facts), nil
}

func ids(r *doctor.Report) []string {
	out := []string{}
	for _, c := range r.RootCauses {
		out = append(out, c.ID)
	}
	return slices.Compact(out)
}

// eventually waits until the diagnosis has exactly these root causes and returns it.
func eventually(t *testing.T, timeout, later time.Duration, want ...string) *doctor.Report {
	t.Helper()
	config := shared.Admin(t)
	var report *doctor.Report
	shared.Eventually(t, fmt.Sprintf("the root causes %v", want), timeout, func(context.Context) error {
		var err error
		if report, err = diagnose(t.Context(), config, later); err != nil {
			return err
		}
		if diff := cmp.Diff(append([]string{}, want...), ids(report)); diff != "" {
			return fmt.Errorf("root causes (-want +got):\n%s\n%s", diff, text(report))
		}
		return nil
	})
	return report
}

func text(r *doctor.Report) string {
	var out strings.Builder
	if err := r.Write(&out, "text", false); err != nil {
		return err.Error()
	}
	return out.String()
}

// parameter is one that no finding has filled in.
var parameter = regexp.MustCompile(`\{[a-z][A-Za-z]*\}`)

func TestFaults(t *testing.T) {
	withPod(t)
	healthy(t)
	for i, tc := range faults {
		t.Run(tc.name, func(t *testing.T) {
			if testing.Short() && !tc.smoke {
				t.Skip("skipped in short mode, which injects a part of the faults")
			}
			f := newFixture(t, shared, fmt.Sprintf("f%d", i))
			tc.inject(f)
			report := eventually(t, 3*envtest.WaitTimeout, tc.later, tc.id)
			t.Log("\n" + text(report))
			checkExplains(t, report, tc.explains)
			again, err := diagnose(t.Context(), shared.Admin(t), tc.later)
			if err != nil || !slices.Equal(ids(again), []string{tc.id}) {
				t.Fatalf("once the symptoms are there: got %v, %v, want %s\n%s", ids(again), err, tc.id, text(again))
			}
			if got := text(report); parameter.MatchString(got) {
				t.Errorf("a parameter is not filled in:\n%s", got)
			}
			if tc.repaired {
				repair(t, f, report.RootCauses[0])
			}
		})
	}
	healthy(t)
}

// checkExplains waits until the root cause explains the findings, some of which follow later.
func checkExplains(t *testing.T, report *doctor.Report, want []string) {
	t.Helper()
	config := shared.Admin(t)
	shared.Eventually(t, fmt.Sprintf("the symptoms %v", want), 2*envtest.WaitTimeout, func(context.Context) error {
		var got []string
		for _, cause := range report.RootCauses {
			for _, f := range cause.Explains {
				got = append(got, f.ID)
			}
		}
		for _, id := range want {
			if !slices.Contains(got, id) {
				var err error
				if report, err = diagnose(t.Context(), config, 0); err != nil {
					return err
				}
				return fmt.Errorf("the symptoms are %v, want %v\n%s", got, want, text(report))
			}
		}
		return nil
	})
}

// repair executes the printed commands, and waits until the doctor does not report the cause.
func repair(t *testing.T, f *fixture, cause doctor.Cause) {
	t.Helper()
	kubeconfig, err := shared.AdminKubeconfig()
	f.must(err)
	commands := "kubectl() { " + shared.Binary("kubectl") + " --kubeconfig=" + kubeconfig + ` "$@"; }` + "\n"
	for _, step := range cause.Fix {
		commands += step.Command + "\n"
	}
	scripttest.Shell(t, f.dir, commands)
	config := shared.Admin(t)
	shared.Eventually(t, "the repair", envtest.WaitTimeout, func(context.Context) error {
		report, err := diagnose(t.Context(), config, 0)
		if err == nil && slices.Contains(ids(report), cause.ID) {
			err = errors.New(text(report))
		}
		return err
	})
}

// healthy waits until the cluster is healthy, and checks the figures of its diagnosis.
func healthy(t *testing.T) {
	t.Helper()
	report := eventually(t, 2*envtest.WaitTimeout, 0)
	if len(report.Unread) > 0 || report.Requests > maxRequests || len(report.APIServices) == 0 {
		t.Errorf("got %s\nwant all facts of APIServices with at most %d requests", text(report), maxRequests)
	}
}

// TestHealthy: third-party APIs have no findings when kube-apiserver must have read all of them.
// One of them delegates neither authentication nor authorization, and has a caBundle from cert-manager.
func TestHealthy(t *testing.T) {
	f := newFixture(t, shared, "healthy")
	f.pod(running)
	f.register(serve(t, f.certificate(nil), f.healthy()), nil)
	f.injected()
	sample, err := shared.StartSampleAPIServer(t.Context())
	f.must(err)
	f.atEnd(func(ctx context.Context) error {
		gv := envtest.SampleGroupVersion
		return errors.Join(f.apiServices.Delete(ctx, gv.Version+"."+gv.Group, metav1.DeleteOptions{}),
			shared.StopServer(sample))
	})
	report := eventually(t, 3*envtest.WaitTimeout, 2*time.Minute)
	if len(report.APIServices) != 5 {
		t.Errorf("got the APIServices %v, want those of two third parties and three of the kit", report.APIServices)
	}
	if got := text(report); !strings.Contains(got, "– permissions  R01 was not checked, R02 was not checked") ||
		!strings.Contains(got, "R02 was not checked: ServiceAccount "+f.namespace+"/"+serviceName) {
		t.Errorf("got %s\nwant R01 and R02 skipped for the account without permissions", got)
	}
	began := time.Now()
	healthy(t)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the diagnosis took %s, want at most 3s", took)
	}
	t.Logf("%d requests, %s", report.Requests, time.Since(began))
}

// withPod gives the Service of the kit's server a pod with the ServiceAccount of the server, which
// is a process without a pod.
func withPod(t *testing.T) {
	t.Helper()
	createPod(t, shared, pod(envtest.Namespace, "kit", account), corev1.PodStatus{})
	selectPods(t, shared)
}

// selectPods makes the Service of the kit's server select the pod named kit.
func selectPods(t *testing.T, e *envtest.Environment) {
	t.Helper()
	_, err := e.Client(t).CoreV1().Services(envtest.Namespace).Patch(t.Context(), envtest.ServiceName,
		types.MergePatchType, []byte(`{"spec": {"selector": {"app": "kit"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPairs injects two faults at a time.
func TestPairs(t *testing.T) {
	withPod(t)
	for i, names := range [][2]string{
		{"RoleBinding in the wrong namespace", "expired certificate"},
		{"no Service", "webhook without a Service"},
		{"another CA", "insecure"},
		{"CA that was created again", "selector without pods"},
		{"certificate for another namespace", "priority of versions"},
		{"plain HTTP", "CA that expires soon"},
		{"redirect", "resource of a built-in group"},
		{"log: policies not readable", "version not served"},
		{"clock of the server", "policy with parameters of no kind"},
		{"closed connections", "webhook with an expired CA"},
		{"image that does not exist", "no resources"},
	} {
		t.Run(strings.Join(names[:], " and "), func(t *testing.T) {
			if testing.Short() && i > 2 {
				t.Skip("skipped in short mode, which injects a part of the pairs")
			}
			var want []string
			for j, name := range names {
				at := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
				faults[at].inject(newFixture(t, shared, fmt.Sprintf("p%d-%d", i, j)))
				want = append(want, faults[at].id)
			}
			config := shared.Admin(t)
			shared.Eventually(t, "both", envtest.WaitTimeout, func(context.Context) error {
				report, err := diagnose(t.Context(), config, 0)
				if err != nil {
					return err
				}
				got := ids(report)
				slices.Sort(got)
				slices.Sort(want)
				if diff := cmp.Diff(want, got); diff != "" {
					return errors.New(diff + text(report))
				}
				return nil
			})
		})
	}
	healthy(t)
}

// TestCatalogue checks that each entry of the catalogue has a fault.
func TestCatalogue(t *testing.T) {
	// By TestAllowedNames, and on kind by TestDoctor.
	injected := []string{"P02", "S18", "S19"}
	for _, f := range faults {
		injected = append(append(injected, f.id), f.explains...)
	}
	for _, f := range trustFaults {
		injected = append(append(injected, f.id), f.explains...)
	}
	for _, f := range networkFaults {
		injected = append(injected, f.id)
	}
	for _, f := range clientFaults {
		injected = append(injected, f.id)
	}
	for _, f := range preFaults {
		injected = append(injected, f.id)
	}
	for _, e := range catalogue.Entries() {
		if e.Layer != "" && !slices.Contains(injected, e.ID) {
			t.Errorf("no fault injects %s", e.ID)
		}
	}
}

// TestPermissions diagnoses as users with some of the permissions.
func TestPermissions(t *testing.T) {
	if _, err := diagnose(t.Context(), shared.User(t, "nobody", rbacv1.PolicyRule{APIGroups: []string{""},
		Resources: []string{"services"}, Verbs: []string{"get"}}), 0); err == nil ||
		!strings.Contains(err.Error(), "list APIServices") {
		t.Errorf("got %v, want an error that the APIServices cannot be read", err)
	}
	report, err := diagnose(t.Context(), shared.User(t, "some", rbacv1.PolicyRule{
		APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: []string{"list"}}), 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.RootCauses) > 0 {
		t.Errorf("got root causes in a healthy cluster:\n%s", text(report))
	}
	var forbidden []string
	for _, u := range report.Unread {
		if u.Forbidden {
			forbidden = append(forbidden, u.What)
		}
	}
	for _, want := range []string{"list namespaces", "list customresourcedefinitions",
		"list validatingwebhookconfigurations", "get the ConfigMap kube-system/extension-apiserver-authentication",
		"get the Service workshop-system/extension-apiserver"} {
		if !slices.Contains(forbidden, want) {
			t.Errorf("got the missing permissions %q, want %q", forbidden, want)
		}
	}
	// The permissions that docs/operate/troubleshooting.md lists.
	list := func(group string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"list", "get"}}
	}
	report, err = diagnose(t.Context(), shared.User(t, "doctor", list("apiregistration.k8s.io", "apiservices"),
		list("", "services", "pods", "namespaces", "configmaps", "resourcequotas"),
		list("discovery.k8s.io", "endpointslices"),
		list("rbac.authorization.k8s.io", "rolebindings"), list("apiextensions.k8s.io", "customresourcedefinitions"),
		list("admissionregistration.k8s.io", "validatingwebhookconfigurations", "mutatingwebhookconfigurations",
			"validatingadmissionpolicies"),
		rbacv1.PolicyRule{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"},
			Verbs: []string{"create"}}), 0)
	if err != nil || len(report.Unread) > 0 || len(report.RootCauses) > 0 {
		t.Errorf("got %v and\n%s\nwant a complete diagnosis", err, text(report))
	}
	_, err = diagnose(t.Context(), shared.Admin(t), 0, "v1.nothing.example.com", "v1.apps")
	if wrong, ok := errors.AsType[*doctor.NameError](err); !ok || len(wrong.Problems) != 2 {
		t.Errorf("got %v, want a problem with each name", err)
	}
}
