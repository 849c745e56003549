// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/test/manifests/permissions"
)

// bindingOf matches the rows of the page's table: the removed binding, and the log message that
// follows.
var bindingOf = regexp.MustCompile("(?m)^\\| (ClusterRoleBinding|RoleBinding) `([^`]+)` \\|.*log: `([^`]+)` \\|$")

// withoutPermissions removes each binding of the page's table, and finds the table's message in the
// log of a new pod.
func withoutPermissions(p page) {
	rows := bindingOf.FindAllStringSubmatch(p.section("Permissions").text, -1)
	bindings := 0
	for line := range strings.Lines(p.section("Install it").manifest()) {
		if line = strings.TrimSpace(line); line == "kind: ClusterRoleBinding" || line == "kind: RoleBinding" {
			bindings++
		}
	}
	if len(rows) != bindings {
		p.Fatalf("%s: got %d rows in the table, want one for each of the %d bindings", p.path, len(rows), bindings)
	}
	for _, row := range rows {
		kind, binding, message := row[1], row[2], row[3]
		namespace, name, namespaced := strings.Cut(binding, "/")
		if namespaced {
			binding = name + " --namespace " + namespace
		}
		p.run("kubectl delete " + kind + " " + binding)
		newPodSays(p, "without "+kind+" "+binding, message)
		p.run("kubectl apply -f second-scheduler.yaml")
	}
	// A pod that failed to start may be left alone for minutes.
	p.run("kubectl delete pods --namespace second-scheduler --selector app.kubernetes.io/name=second-scheduler")
	holdsLease(p)
}

// newPodSays replaces the scheduler's pod, and waits for a text in the log of the new one.
func newPodSays(p page, when, text string) {
	p.Helper()
	pods := p.core.CoreV1().Pods(scheduler)
	selector := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + scheduler}
	before, err := pods.List(p.Context(), selector)
	if err != nil {
		p.Fatal(err)
	}
	for _, pod := range before.Items {
		if err := pods.Delete(p.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
			p.Fatal(err)
		}
	}
	p.eventually("the log "+when, func(ctx context.Context) error {
		now, err := pods.List(ctx, selector)
		if err != nil {
			return err
		}
		last := errors.New("there is no new pod")
		for _, pod := range now.Items {
			if slices.ContainsFunc(before.Items, func(old corev1.Pod) bool { return old.UID == pod.UID }) {
				continue
			}
			log, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
			if err != nil {
				return err // it has not started yet
			}
			// The log quotes the message of an error.
			if strings.Contains(strings.ReplaceAll(string(log), `\"`, `"`), text) {
				return nil
			}
			last = fmt.Errorf("pod %s does not say %q:\n%s", pod.Name, text, log)
		}
		return last
	})
}

// ownRole checks that a scheduler whose role lacks the rules of system:auth-delegator
// authenticates no request at its port. After the page's command adds that binding, it does.
func ownRole(p page) {
	const own, builtIn = "second-scheduler-own", "system:kube-scheduler"
	s := p.section("Permissions")
	withoutReviews(p, own, builtIn)
	p.Cleanup(func() {
		p.run("kubectl apply -f second-scheduler.yaml\nkubectl delete --ignore-not-found clusterrole/" + own +
			" clusterrolebinding/" + own +
			" clusterrolebinding/second-scheduler:system:auth-delegator")
	})
	p.run("kubectl create clusterrolebinding " + own + " --clusterrole " + own +
		" --serviceaccount second-scheduler:second-scheduler\n" +
		"kubectl delete clusterrolebinding second-scheduler:" + builtIn)
	port := openPort(p)
	allowed, unprivileged := p.token("monitoring"), p.token("default")
	// The scheduler caches responses of kube-apiserver for 10 s.
	port.eventually(p, allowed, http.StatusUnauthorized)
	port.eventually(p, "", http.StatusInternalServerError)
	log, err := p.core.CoreV1().Pods(scheduler).GetLogs(port.pod, &corev1.PodLogOptions{}).DoRaw(p.Context())
	if want := "tokenreviews.authentication.k8s.io is forbidden"; err != nil || !strings.Contains(string(log), want) ||
		!strings.Contains(s.text, want) {
		p.Errorf("want %q in %s and in the log: %v\n%s", want, p.path, err, log)
	}
	p.run(s.commands(1)[0])
	port.eventually(p, allowed, http.StatusOK)
	port.eventually(p, unprivileged, http.StatusForbidden)
	port.eventually(p, "", http.StatusForbidden)
}

// withoutReviews creates the ClusterRole role with the rules of the ClusterRole like, without
// those of system:auth-delegator. It fails the test if like does not have them.
func withoutReviews(p page, role, like string) {
	p.Helper()
	roles := p.core.RbacV1().ClusterRoles()
	delegator, err := roles.Get(p.Context(), "system:auth-delegator", metav1.GetOptions{})
	if err != nil {
		p.Fatal(err)
	}
	original, err := roles.Get(p.Context(), like, metav1.GetOptions{})
	if err != nil {
		p.Fatal(err)
	}
	own := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}}
	var taken []rbacv1.PolicyRule
	for _, rule := range original.Rules {
		if slices.ContainsFunc(rule.APIGroups, func(group string) bool {
			return group == "authentication.k8s.io" ||
				group == "authorization.k8s.io"
		}) {
			taken = append(taken, rule)
		} else {
			own.Rules = append(own.Rules, rule)
		}
	}
	got, err := permissions.Flatten("", taken)
	if err != nil {
		p.Fatal(err)
	}
	want, err := permissions.Flatten("", delegator.Rules)
	if err != nil {
		p.Fatal(err)
	}
	if !slices.Equal(got, want) {
		p.Fatalf("%s has the reviews %v, want %v, which is why %s has no binding to system:auth-delegator", like,
			got, want, p.path)
	}
	if _, err := roles.Create(p.Context(), own, metav1.CreateOptions{}); err != nil {
		p.Fatal(err)
	}
}

// token returns a token of a ServiceAccount in the scheduler's namespace.
func (p page) token(account string) string {
	p.Helper()
	request, err := p.core.CoreV1().ServiceAccounts(scheduler).CreateToken(p.Context(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		p.Fatal(err)
	}
	return request.Status.Token
}

// schedulerPort is a connection to the scheduler's port, whose certificate is verified with the CA
// that certgen created.
type schedulerPort struct {
	pod, address string
	client       *http.Client
}

func openPort(p page) schedulerPort {
	p.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, "pki-scheduler", "serving", certs.BundleFile))
	if err != nil {
		p.Fatal(err)
	}
	bundle, err := certs.ParseBundle(data)
	if err != nil {
		p.Fatal(err)
	}
	port := schedulerPort{pod: holdsLease(p).Name}
	address, closeIt, err := p.forward(p.Context(), scheduler, port.pod, 10259)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(closeIt)
	port.address = address
	port.client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: bundle.Pool(), ServerName: scheduler + "." + scheduler + ".svc",
			MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}}
	return port
}

// eventually requests /metrics, without credentials if the token is empty, until the status code
// is want.
func (s schedulerPort) eventually(p page, token string, want int) {
	p.Helper()
	p.eventually(fmt.Sprintf("the scheduler's /metrics to respond with %d", want), func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.address+"/metrics", http.NoBody)
		if err != nil {
			return err
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := s.client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode != want {
			err = fmt.Errorf("got %s: %.300s", response.Status, body)
		}
		return err
	})
}
