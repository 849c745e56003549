// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/envtest"
)

// TestRefusesToStart checks that the server reports a problem and its remedy within 10 s, and
// exits.
func TestRefusesToStart(t *testing.T) {
	account := newAccount(t, "no-permissions")
	kubeconfig := sharedKubeconfig(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, tc := range map[string]struct {
		args []string
		want string // a regular expression
	}{
		"port taken": {
			[]string{"--kubeconfig=" + kubeconfig, "--secure-port=" + port(taken)},
			`address already in use.*--secure-port`,
		},
		"kube-apiserver unreachable": {
			[]string{"--kubeconfig=" + unreachable(t, kubeconfig)},
			`(?s)read ConfigMap kube-system/extension-apiserver-authentication.*connection refused.*check the address`,
		},
		"etcd unreachable": {
			[]string{"--kubeconfig=" + kubeconfig, "--etcd-servers=http://127.0.0.1:1"},
			`read from etcd \[http://127\.0\.0\.1:1\].*check --etcd-servers`,
		},
		"trust unreadable": {
			[]string{"--kubeconfig=" + account},
			`kubectl create rolebinding .* -n kube-system --role=extension-apiserver-authentication-reader --serviceaccount=default:no-permissions`,
		},
		"data directory in use": {
			[]string{"--kubeconfig=" + kubeconfig, "--data-dir=" + filepath.Join(shared.Dir, "data-1")},
			`data-1 is in use by another server`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, tc.args...)
			select {
			case <-s.done:
			case <-time.After(10 * time.Second):
				t.Fatalf("still running after 10 s:\n%s", s)
			}
			if s.cmd.ProcessState.Success() {
				t.Error("exit code 0, want another")
			}
			if !regexp.MustCompile(tc.want).MatchString(s.String()) {
				t.Errorf("want a message that matches %s, got:\n%s", tc.want, s)
			}
		})
	}
}

// server is a server process that a test starts itself.
type server struct {
	cmd  *exec.Cmd
	url  string
	done chan struct{}
	mu   sync.Mutex
	log  bytes.Buffer
}

func (s *server) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *server) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// serve starts a server with the certificates of the shared environment, and stops it at the end
// of the test. Flags that are not given have working values.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	port := shared.FreePort(t)
	// Not t.TempDir: the path of the socket in it would be too long.
	dir, err := os.MkdirTemp("", "serve-")
	if err != nil {
		t.Fatal(err)
	}
	serving := filepath.Join(shared.PKI(), certs.ServingDir)
	s := &server{url: "https://127.0.0.1:" + port, done: make(chan struct{})}
	s.cmd = exec.Command(shared.ServerBinary(), append([]string{
		"serve", "--bind-address=127.0.0.1", "--secure-port=" + port, "--data-dir=" + dir,
		"--tls-cert-file=" + filepath.Join(serving, certs.CertFile), "--tls-private-key-file=" +
			filepath.Join(serving, certs.KeyFile),
	}, args...)...)
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
		if t.Failed() {
			t.Logf("the server's log:\n%s", s)
		}
	})
	return s
}

func port(l net.Listener) string { return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) }

// unreachable returns a copy of a kubeconfig that points to a port without a listener.
func unreachable(t *testing.T, kubeconfig string) string {
	t.Helper()
	data, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	data = regexp.MustCompile(`server: .*`).ReplaceAll(data, []byte("server: https://127.0.0.1:1"))
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// sharedKubeconfig returns the kubeconfig of the ServiceAccount of the manifests.
func sharedKubeconfig(t *testing.T) string {
	t.Helper()
	path, err := shared.AccountKubeconfig(t.Context(), envtest.Namespace, "extension-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// newAccount creates a ServiceAccount without permissions and returns its kubeconfig.
func newAccount(t *testing.T, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := shared.Client(t).CoreV1().ServiceAccounts("default").Create(t.Context(), account,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	path, err := shared.AccountKubeconfig(t.Context(), "default", name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
