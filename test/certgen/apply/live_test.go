// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/apply"
	"example.com/extension-apiserver/internal/cluster/live"
	"example.com/extension-apiserver/pkg/envtest"
)

// waitLimit is how long a condition may take on a busy machine: kube-apiserver checks a failed
// APIService every 30 s.
const waitLimit = 90 * time.Second

const secretName = "extension-apiserver-serving"

// suite is a real control plane of two kube-apiservers with two extension API servers, as for a
// rotation.
type suite struct {
	*testing.T
	env     *envtest.Environment
	cluster apply.Client
	service certs.Service
}

// TestApplyAndCheck applies certificates to a real cluster, and checks it in a healthy state and
// with faults.
func TestApplyAndCheck(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root: run the tests as root")
	}
	e := envtest.New(t, envtest.Options{Network: envtest.EndpointRouting, KubeAPIServers: 2, Servers: 2})
	config, err := e.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(config)
	if err != nil {
		t.Fatal(err)
	}
	c.Dial = config.Dial
	service := certs.Service{Name: envtest.ServiceName, Namespace: envtest.Namespace}
	for _, step := range []struct {
		name string
		test func(*suite)
	}{
		{"check finds nothing", checkHealthy},
		{"a dry run writes nothing", dryRun},
		{"apply, and again", applyTwice},
		{"changed meanwhile", changedMeanwhile},
		{"another manager's field", conflict},
		{"seen by each kube-apiserver", seenByEach},
		{"cert-manager's field", certManager},
		{"an APIService that is gone", gone},
		{"insecureSkipTLSVerify", insecure},
		{"check finds faults", checkFaults},
	} {
		// Each step depends on the ones before.
		if !t.Run(step.name, func(t *testing.T) { step.test(&suite{t, e, apply.Client{Cluster: c}, service}) }) {
			return
		}
	}
}

func (l *suite) options() apply.Options {
	return apply.Options{Service: l.service, Dir: l.env.PKI(), Secret: secretName}
}

// apply plans and applies.
func (l *suite) apply(o apply.Options) (*apply.Plan, error) {
	l.Helper()
	return l.cluster.PlanAndApply(l.Context(), o, func(*apply.Plan) {})
}

// changeCABundle retries, like a step of a rotation, when kube-apiserver writes the status of an
// APIService meanwhile.
func (l *suite) changeCABundle(add, remove certs.Bundle) error {
	return retry.OnError(wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.6, Steps: 10}, apply.Changed,
		func() error { return l.cluster.ChangeCABundle(l.Context(), l.service, add, remove) })
}

func (l *suite) mustApply(o apply.Options) map[certs.Action]int {
	l.Helper()
	plan, err := l.apply(o)
	if err != nil {
		l.Fatal(err)
	}
	actions := map[certs.Action]int{}
	for _, item := range plan.Items {
		actions[item.Action]++
	}
	return actions
}

func (l *suite) apiServices() []apiregistrationv1.APIService {
	l.Helper()
	all, err := l.cluster.APIServices(l.Context(), l.service)
	if err != nil || len(all) == 0 {
		l.Fatalf("got %d APIServices, %v", len(all), err)
	}
	return all
}

// versions describes the state of all objects that apply can write.
func (l *suite) versions() string {
	l.Helper()
	var out []string
	for _, a := range l.apiServices() {
		out = append(out, a.Name+"@"+fmt.Sprint(a.Generation, a.Spec.InsecureSkipTLSVerify, len(a.ManagedFields),
			len(a.Spec.CABundle)))
	}
	secret, err := l.cluster.Core.CoreV1().Secrets(l.service.Namespace).Get(l.Context(), secretName,
		metav1.GetOptions{})
	if err == nil {
		out = append(out, "Secret@"+secret.ResourceVersion)
	}
	return strings.Join(out, " ")
}

// patch changes the first APIService as another field manager.
func (l *suite) patch(patch string) {
	l.Helper()
	name := l.apiServices()[0].Name
	_, err := l.cluster.Aggregator.ApiregistrationV1().APIServices().Patch(l.Context(), name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{FieldManager: "helm"})
	if err != nil {
		l.Fatal(err)
	}
}

func (l *suite) check(o live.Options) *verify.Report {
	l.Helper()
	o.Service = l.service
	report, err := live.Check(l.Context(), l.cluster.Cluster, o)
	if err != nil {
		l.Fatal(err)
	}
	return report
}

func (l *suite) allOptions() live.Options {
	return live.Options{Dir: l.env.PKI(), ProxyClient: filepath.Join(l.env.PKI(), certs.FrontProxyClientDir)}
}

// healthy waits until the check has no findings.
func (l *suite) healthy(o live.Options) {
	l.Helper()
	l.env.Eventually(l.T, "no finding", waitLimit, func(context.Context) error {
		if r := l.check(o); len(r.Findings) > 0 {
			return fmt.Errorf("got %+v", r.Findings)
		}
		return nil
	})
}

func checkHealthy(l *suite) {
	l.healthy(l.allOptions())
	r := l.check(l.allOptions())
	// The Service, 3 APIServices, 2 endpoints, the directory, 2 kube-apiservers, the ConfigMap,
	// the front proxy.
	if want := 1 + len(l.apiServices()) + 2 + 1 + 2 + 1 + 1; r.Summary.Checked != want || r.Failed(true) {
		l.Errorf("got %+v, want %d things checked", r, want)
	}
}
