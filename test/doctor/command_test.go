// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"example.com/extension-apiserver/internal/doctor"
	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/envtest"
)

// TestCommand runs the command as a plugin of the real kubectl.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	scripttest.Shell(t, filepath.Join("..", ".."), "go build -o "+dir+" ./cmd/kubectl-aggregation")
	command := func(ctx context.Context, user string, args ...string) *exec.Cmd {
		kubeconfig, err := shared.AdminKubeconfig()
		if user != "" {
			kubeconfig, err = shared.Kubeconfig(user)
		}
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(ctx, shared.Binary("kubectl"), append([]string{"aggregation", "doctor"}, args...)...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig)
		return cmd
	}
	run := func(user string, code int, want string, args ...string) []byte {
		t.Helper()
		cmd := command(t.Context(), user, args...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		got := 0
		var exit *exec.ExitError
		if err := cmd.Run(); errors.As(err, &exit) {
			got = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if all := out.String() + errs.String(); got != code || !strings.Contains(all, want) {
			t.Errorf("%s: got exit code %d, want %d and %q\n%s", args, got, code, want, all)
		}
		return out.Bytes()
	}
	healthy(t)
	run("", 0, "✓ effects")
	run("", 0, "", "--quiet", "v1.workshop.example.com")
	run("", 2, `find APIService "v1.nothing.example.com": not found`, "v1.nothing.example.com")
	run("", 2, "it has no Service", "v1.apps")
	shared.User(t, "lister", rbacv1.PolicyRule{APIGroups: []string{"apiregistration.k8s.io"},
		Resources: []string{"apiservices"}, Verbs: []string{"list"}})
	run("lister", 2, "– service", "-o", "text")
	run("lister", 2, "could not list namespaces: namespaces is forbidden")
	run("nobody", 2, "list APIServices: ")

	complete := command(t.Context(), "", "--quiet", "v1.workshop.example.com", "")
	complete.Args = append([]string{"kubectl-aggregation", "__complete"}, complete.Args[2:]...)
	complete.Path = filepath.Join(dir, "kubectl-aggregation")
	if out, err := complete.Output(); err != nil || !strings.HasPrefix(string(out),
		"v1alpha1.workshop.example.com\nv1beta1.workshop.example.com\n:") {
		t.Errorf("completion: got %v and\n%s", err, out)
	}

	output := &lines{}
	watch := command(t.Context(), "", "--watch", "--quiet")
	watch.Stdout, watch.Stderr = output, output
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, shared, "command")
	f.registerAt(443, nil)
	eventually(t, envtest.WaitTimeout, 0, "S01")
	run("", 1, "S01 error: The Service of the APIService does not exist")
	run("", 1, "<failure ", "-o", "junit")
	run("", 1, "id: S01", "-o", "yaml")
	var report doctor.Report
	if err := json.Unmarshal(run("", 1, "", "-o", "json"), &report); err != nil || len(report.RootCauses) != 1 ||
		report.RootCauses[0].ID != "S01" {
		t.Errorf("got %v and %+v, want the root cause S01", err, report)
	}
	shared.Eventually(t, "the report of --watch", envtest.WaitTimeout, func(context.Context) error {
		if !strings.Contains(output.String(), "S01 error") {
			return errors.New(output.String())
		}
		return nil
	})
	if err := watch.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := watch.Wait(); err != nil {
		t.Errorf("--watch after an interrupt: %v\n%s", err, output)
	}
}

// lines collects output that is read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(data)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
