// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/envtest"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// shared is the control plane. Its own server is not used: each test starts a server behind its
// own relay.
var shared *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, envtest.Options{Unregistered: true, ExternalEtcd: true}, &shared))
}

const (
	// protected is a path that only the user "boss" and the group "bosses" may read.
	protected = "/apis/workshop.example.com/v1/gadgets"
	// whoami is the path at which every authenticated user may create an IdentityReview.
	whoami = "/apis/workshop.example.com/v1/identityreviews"
)

// server is a server behind a relay.
type server struct {
	*relay
	address string
	dataDir string // of its etcd
	cmd     *exec.Cmd
	done    chan struct{} // closed when it exited
	mu      sync.Mutex
	output  bytes.Buffer
}

func (s *server) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.Write(p)
}

// log returns the server's output until now.
func (s *server) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.String()
}

// newServer starts a server behind a new relay and waits until it is ready.
func newServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := start(t, newRelay(t), args...)
	s.waitReady(t)
	return s
}

// start starts a server behind a relay, and kills it at the end of the test.
func start(t *testing.T, r *relay, args ...string) *server {
	t.Helper()
	return startAs(t, "extension-apiserver", r, args...)
}

// startAs is start with another ServiceAccount.
func startAs(t *testing.T, account string, r *relay, args ...string) *server {
	t.Helper()
	if err := grantOnce(); err != nil {
		t.Fatal(err)
	}
	port := shared.FreePort(t)
	// Not t.TempDir: the path of the socket in it would be too long.
	dir, err := os.MkdirTemp("", "direct-")
	if err != nil {
		t.Fatal(err)
	}
	serving := filepath.Join(shared.PKI(), certs.ServingDir)
	s := &server{relay: r, address: "127.0.0.1:" + port, dataDir: dir, done: make(chan struct{})}
	s.cmd = exec.Command(shared.ServerBinary(), append([]string{
		"serve", "--bind-address=127.0.0.1", "--secure-port=" + port,
		"--data-dir=" + dir, "--kubeconfig=" + kubeconfig(t, account, r, dir),
		"--tls-cert-file=" + filepath.Join(serving, certs.CertFile), "--tls-private-key-file=" +
			filepath.Join(serving, certs.KeyFile),
	}, args...)...)
	// As in manifests/base/deployment.yaml.
	s.cmd.Env = append(os.Environ(), "GOMEMLIMIT=384MiB")
	s.cmd.Stdout, s.cmd.Stderr = s, s
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.done
		os.RemoveAll(dir)
		if log := s.log(); t.Failed() {
			t.Logf("the end of the server's log:\n%s", log[max(0, len(log)-4000):])
		}
	})
	return s
}

// end kills the server and returns its whole log.
func (s *server) end() string {
	_ = s.cmd.Process.Kill()
	<-s.done
	return s.log()
}

func (s *server) waitReady(t *testing.T) {
	t.Helper()
	shared.Eventually(t, "our server to be ready", envtest.WaitTimeout, func(context.Context) error {
		select {
		case <-s.done:
			t.Fatalf("our server ended:\n%s", s.log())
		default:
		}
		if got := s.try(nil, http.MethodGet, "/readyz", nil, ""); got.status != http.StatusOK {
			return fmt.Errorf("/readyz: %s", got)
		}
		return nil
	})
}

// kubeconfig returns a kubeconfig of the ServiceAccount with the relay in place of kube-apiserver.
func kubeconfig(t *testing.T, account string, r *relay, dir string) string {
	t.Helper()
	path, err := accountKubeconfig(account)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthority, cluster.CertificateAuthorityData = r.url, "",
			certs.Bundle{r.ca.Certificate}.PEM()
	}
	path = filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// accountKubeconfigs are created once: other servers read the files.
var accountKubeconfigs sync.Map

func accountKubeconfig(account string) (string, error) {
	once, _ := accountKubeconfigs.LoadOrStore(account, sync.OnceValues(func() (string, error) {
		return shared.AccountKubeconfig(context.Background(), envtest.Namespace, account)
	}))
	return once.(func() (string, error))()
}

// grantOnce grants the test users their permissions, and waits until kube-apiserver applies them.
var grantOnce = sync.OnceValue(func() error {
	gadgets := rbacv1.PolicyRule{APIGroups: []string{v1.SchemeGroupVersion.Group}, Resources: []string{"gadgets"},
		Verbs: []string{"get", "list", "create"}}
	reviews := rbacv1.PolicyRule{APIGroups: []string{v1.SchemeGroupVersion.Group},
		Resources: []string{"identityreviews"}, Verbs: []string{"create"}}
	return errors.Join(
		grant("direct-bosses", []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "boss"},
			{Kind: rbacv1.GroupKind, Name: "bosses"}}, gadgets),
		grant("direct-reviews", []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "system:authenticated"}}, reviews),
	)
})

// grant binds rules to subjects, and returns when kube-apiserver applies them: the server caches a
// denial for 10 s.
func grant(name string, subjects []rbacv1.Subject, rules ...rbacv1.PolicyRule) error {
	ctx, cancel := context.WithTimeout(context.Background(), envtest.WaitTimeout)
	defer cancel()
	client, err := shared.AdminClient()
	if err != nil {
		return err
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return err
	}
	rule := rules[0]
	spec := authorizationv1.SubjectAccessReviewSpec{User: subjects[0].Name,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: rule.APIGroups[0], Version: "*", Resource: rule.Resources[0], Verb: rule.Verbs[0],
		}}
	if subjects[0].Kind == rbacv1.GroupKind {
		spec.User, spec.Groups = "somebody", []string{subjects[0].Name}
	}
	for {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
			&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("wait for the permissions of %s: %w", name, err)
		}
		if review.Status.Allowed {
			return nil
		}
	}
}
