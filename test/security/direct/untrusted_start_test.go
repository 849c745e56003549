// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestS13TrustUnreadableAtStart checks that a server that cannot read the trusted front-proxy CA
// exits or stays unready, and never serves. If it continued without the CA, it would accept any
// client, or none, as the front proxy.
func TestS13TrustUnreadableAtStart(t *testing.T) {
	t.Parallel()
	cm := func(data string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"kube-system","name":"` + trustName +
			`"},"data":{` + data + `}}`
	}
	for name, tc := range map[string]struct {
		script http.HandlerFunc
		log    string
		// waits is true if the server does not exit, but stays unready.
		waits bool
	}{
		"403": {reply(http.StatusForbidden, statusOf(http.StatusForbidden, metav1.StatusReasonForbidden)),
			"create rolebinding", false},
		"401": {reply(http.StatusUnauthorized,
			statusOf(http.StatusUnauthorized,
				metav1.StatusReasonUnauthorized)), "rejects the credentials", false},
		"404": {reply(http.StatusNotFound, statusOf(http.StatusNotFound, metav1.StatusReasonNotFound)),
			trustName, false},
		"500": {reply(http.StatusInternalServerError,
			statusOf(http.StatusInternalServerError, metav1.StatusReasonInternalError)), trustName, false},
		"no response":       {hang, trustName, false},
		"broken connection": {reset, trustName, false},
		"garbage":           {reply(http.StatusOK, "<html>"), trustName, false},
		"empty": {reply(http.StatusOK, cm("")),
			"the aggregation layer of this cluster is not configured", false},
		"no certificate": {reply(http.StatusOK, cm(`"requestheader-client-ca-file":"none"`)), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRelay(t)
			r.script(trustPath, tc.script)
			s := start(t, r)
			s.neverServes(t)
			select {
			case <-s.done:
				if s.cmd.ProcessState.Success() {
					t.Error("exit code 0, want another")
				}
			default:
				if !tc.waits {
					t.Error("it still runs, want it to end")
				}
			}
			if !strings.Contains(s.log(), tc.log) {
				t.Errorf("want %q in the log:\n%s", tc.log, s.log())
			}
		})
	}
}

// TestS13TrustUnwatchable checks a server that could read the trust once and then cannot watch it.
// The server is not ready, although all other checks pass, and authenticates no request with the
// trust of that time. The library alone would be ready, and treat the front proxy as an unknown
// client.
func TestS13TrustUnwatchable(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	m := newTrustMap(t, r)
	broken := reply(http.StatusForbidden, statusOf(http.StatusForbidden, metav1.StatusReasonForbidden))
	r.script(trustPath, func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/"+trustName) {
			m.serve(w, req)
			return
		}
		broken(w, req)
	})
	s := start(t, r)
	shared.Eventually(t, "all checks but that of the trust to succeed", envtest.WaitTimeout, func(context.Context) error {
		var failed []string
		got := s.try(nil, http.MethodGet, "/readyz?verbose", nil, "")
		for line := range strings.Lines(got.body) {
			if strings.HasPrefix(line, "[-]") && !strings.HasPrefix(line, "[-]front-proxy-trust ") {
				failed = append(failed, line)
			}
		}
		if len(failed) > 0 || !strings.Contains(got.body, "[+]permissions ok") {
			return fmt.Errorf("%q: %d %s", failed, got.status, got.body)
		}
		return nil
	})
	s.neverServes(t)

	// The test setup works: with responses to the rest, the same server becomes ready.
	r.script(trustPath, m.serve)
	select {
	case <-s.done:
		t.Fatalf("the server ended, want it to wait:\n%s", s.log())
	default:
	}
	s.waitReady(t)
	s.get(t, frontProxy(t), forged()).want(t, "the front proxy", http.StatusOK)
}

// neverServes sends requests until the server exits, or has responded to 20 requests of each kind.
// It must authorize none of them, and must never be ready.
func (s *server) neverServes(t *testing.T) {
	t.Helper()
	proxy, deadline := frontProxy(t), time.After(envtest.WaitTimeout)
	for responded := 0; responded < 20; {
		for _, path := range []string{protected, "/readyz"} {
			got := s.try(proxy, http.MethodGet, path, forged(), "")
			switch {
			case got.status == 0:
			case got.status < 400:
				t.Fatalf("GET %s: %s, want to be refused", path, got)
			default:
				responded++
			}
		}
		select {
		case <-s.done:
			return
		case <-deadline:
			t.Fatal("it neither exited nor responded")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// TestS13TrustForbidden removes the permission to read the trust from a running server. Its watch
// stays open, and the library would use the data that it read last for days. Within a minute the
// server is not ready, rejects writes, and reports the missing permission.
func TestS13TrustForbidden(t *testing.T) {
	const name = "trust-forbidden"
	account := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: envtest.Namespace, Name: name}}
	client, err := shared.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ServiceAccounts(envtest.Namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"extension-apiserver", "system:auth-delegator"} {
		if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + ":" + role}, Subjects: account,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.RbacV1().RoleBindings(envtest.Namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: account,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-apiserver-hooks"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bindings := client.RbacV1().RoleBindings(metav1.NamespaceSystem)
	allow := func() {
		t.Helper()
		if _, err := bindings.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: account,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: trustName + "-reader"},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	allow()
	waitUntilReadable(t, name)
	s := startAs(t, name, newRelay(t))
	s.waitReady(t)
	proxy := frontProxy(t)
	create := func() response {
		return s.try(proxy, http.MethodPost, protected+"?dryRun=All", http.Header{"X-Remote-User": {"boss"}},
			gadget("new"))
	}
	create().want(t, "a write while the trust is readable", http.StatusCreated)

	if err := bindings.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// The server checks its permissions each minute, with a jitter of 10 %. Other tests run
	// meanwhile.
	const within = 75 * time.Second
	unready := make(chan error, 1)
	go func() {
		var got response
		for deadline := time.After(within); ; {
			if got = s.try(nil, http.MethodGet, "/readyz?verbose", nil, ""); strings.Contains(got.body,
				"[-]permissions failed") {
				unready <- nil
				return
			}
			select {
			case <-deadline:
				unready <- fmt.Errorf("readyz is %d after %s without the permission: %s", got.status, within, got.body)
				return
			case <-time.After(time.Second):
			}
		}
	}()
	t.Parallel()
	if err := <-unready; err != nil {
		t.Fatal(err)
	}
	const missing = "this server lacks permissions: list configmaps extension-apiserver-authentication in the namespace kube-system (for the front proxy's trust), " +
		"watch configmaps extension-apiserver-authentication in the namespace kube-system (for the front proxy's trust)"
	if got := create(); got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, missing) {
		t.Errorf("a write without the permission: %s, want 503 with %q", got, missing)
	}
	if !strings.Contains(s.log(), missing) {
		t.Errorf("want %q in the log:\n%s", missing, s.log())
	}

	allow()
	s.waitReady(t)
	create().want(t, "a write when the trust is readable again", http.StatusCreated)
}

// waitUntilReadable waits until kube-apiserver lets the ServiceAccount read the trust.
func waitUntilReadable(t *testing.T, account string) {
	t.Helper()
	path, err := accountKubeconfig(account)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, account+" to read the trust", envtest.WaitTimeout, func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, trustName, metav1.GetOptions{})
		return err
	})
}
