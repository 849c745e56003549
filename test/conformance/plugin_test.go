// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/conformance"
	"example.com/extension-apiserver/pkg/envtest"
)

const samples = `apiVersion: workshop.example.com/v1
kind: %KIND%
metadata: {name: a}
spec: %SPEC%
`

// TestPlugin runs the command as a plugin of the real kubectl.
func TestPlugin(t *testing.T) {
	e := envtest.New(t, envtest.Options{})
	kubeconfig, err := e.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	scripttest.Shell(t, filepath.Join("..", ".."), "go build -o "+dir+" ./cmd/kubectl-aggregation")
	for name, text := range map[string][2]string{"gadget": {"Gadget", "{purpose: x}"},
		"refused": {"Gadget", "{precision: -1}"}, "other": {"Thing", "{}"}, "review": {"IdentityReview", "{}"}} {
		scripttest.Write(t, filepath.Join(dir, name+".yaml"),
			strings.NewReplacer("%KIND%", text[0], "%SPEC%", text[1]).Replace(samples))
	}
	command := func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, e.Binary("kubectl"), append([]string{"aggregation", "conformance"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig)
		return cmd
	}
	run := func(t *testing.T, code int, args ...string) (stdout, stderr string) {
		t.Helper()
		cmd := command(t.Context(), args...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		got := 0
		var exit *exec.ExitError
		if err := cmd.Run(); errors.As(err, &exit) {
			got = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if got != code {
			t.Errorf("%s: got exit code %d, want %d\n%s%s", args, got, code, out.String(), errs.String())
		}
		return out.String(), errs.String()
	}
	contains := func(t *testing.T, got string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("got no %q in\n%s", w, got)
			}
		}
	}

	t.Run("text", func(t *testing.T) {
		stdout, stderr := run(t, 0, "--sample=gadget.yaml", "--only=names,representations/cbor")
		contains(t, stdout, "FAILED representations/cbor (optional)", "kep",
			"gadgets.v1.workshop.example.com (Gadget) on Kubernetes v1.", "AREA",
			"skipped 3: the resource is not namespaced")
		contains(t, stderr, "12 of 12: ")
	})
	t.Run("json", func(t *testing.T) {
		stdout, _ := run(t, 0, "gadgets.v1.workshop.example.com", "--sample=gadget.yaml", "--only=names", "-o=json")
		report := conformance.Report{}
		if err := json.Unmarshal([]byte(stdout), &report); err != nil || len(report.Results) != 11 ||
			report.Count("", conformance.Passed) < 7 {
			t.Errorf("got %v and %+v, want 11 results", err, report)
		}
	})
	t.Run("junit", func(t *testing.T) {
		stdout, _ := run(t, 0, "--sample=gadget.yaml", "--only=names", "-o=junit")
		suite := struct {
			Tests int        `xml:"tests,attr"`
			Cases []struct{} `xml:"testcase"`
		}{}
		if err := xml.Unmarshal([]byte(stdout), &suite); err != nil || suite.Tests != 11 || len(suite.Cases) != 11 {
			t.Errorf("got %v and %+v, want 11 cases", err, suite)
		}
	})
	t.Run("html", func(t *testing.T) {
		stdout, _ := run(t, 0, "--sample=gadget.yaml", "--only=representations/cbor,names/already-exists", "-o=html")
		contains(t, stdout, "<h1>Conformance of gadgets.v1.workshop.example.com</h1>", `<h3 id="representations/cbor">`,
			"Accept: application/cbor", "406", "names/already-exists")
	})
	t.Run("refused sample", func(t *testing.T) {
		stdout, _ := run(t, 3, "--sample=refused.yaml", "--only=create,list,discovery")
		contains(t, stdout, "FAILED create/response (required)",
			"cannot create an object like the sample: got 422 Invalid", "discovery ")
	})
	t.Run("unknown action", func(t *testing.T) {
		_, stderr := run(t, 1, "--sample=gadget.yaml", `--actions={"cancle": {}}`)
		contains(t, stderr, "action cancle: the resource has no subresource cancle with the verb create")
	})
	t.Run("unknown kind", func(t *testing.T) {
		_, stderr := run(t, 1, "--sample=other.yaml")
		contains(t, stderr, `workshop.example.com/v1 has no kind "Thing"; its resources: gadgets`)
	})
	t.Run("review", func(t *testing.T) {
		stdout, _ := run(t, 0, "--sample=review.yaml", "--only=names,discovery")
		contains(t, stdout, "the resource has no verb get")
	})
	t.Run("unprivileged user", func(t *testing.T) {
		stdout, _ := run(t, 3, "--sample=gadget.yaml", "--as=nobody", "--only=create,discovery")
		contains(t, stdout, "FAILED create/response (required)",
			"cannot create an object like the sample: got 403 Forbidden", "discovery ")
	})
	t.Run("security", func(t *testing.T) {
		proxy := issue(t, e, certs.FrontProxyCADir, certs.FrontProxyUser)
		scripttest.Write(t, filepath.Join(dir, "proxy.crt"), string(proxy.CertPEM))
		scripttest.Write(t, filepath.Join(dir, "proxy.key"), string(proxy.KeyPEM))
		own := e.Servers[0].Config(e)
		stdout, _ := run(t, 0, "--security", "--sample=gadget.yaml", "--url="+own.Host, "--server-name="+own.ServerName,
			"--ca-file="+own.CAFile,
			"--front-proxy-cert=proxy.crt", "--front-proxy-key=proxy.key", "--only=identity")
		contains(t, stdout, "9 passed, 0 failed", "the target has no certificate of a user")
	})
	t.Run("security at a wrong port", func(t *testing.T) {
		_, stderr := run(t, 1, "--security", "--sample=gadget.yaml", "--url=https://127.0.0.1:1",
			"--ca-file="+e.Servers[0].Config(e).CAFile,
			"--front-proxy-cert=proxy.crt", "--front-proxy-key=proxy.key")
		contains(t, stderr, "reach the server's own port: GET https://127.0.0.1:1/: ", "connection refused")
	})
	t.Run("known", func(t *testing.T) {
		stdout, _ := run(t, 3, "--sample=gadget.yaml", "--only=names/already-exists,representations/cbor",
			"--known=names/already-exists,representations/cbor")
		contains(t, stdout, "failed representations/cbor (optional), known", "PASSED names/already-exists (required)",
			"the check is known to fail, but passed")
	})
	t.Run("wrong target", func(t *testing.T) {
		_, stderr := run(t, 2, "--sample=gadget.yaml", "--known=nosuch/check", "--webhook-address=:8443",
			"--audit-log=nosuch", `--change={"spec": {"purpose": "x"}}`)
		contains(t, stderr, `unknown check or area "nosuch/check"`,
			`WebhookAddress is ":8443": must be HOST:PORT`, "read the audit log: stat nosuch",
			"must be a JSON merge patch that changes the sample")
	})
	t.Run("hanging discovery", func(t *testing.T) { hangingDiscovery(t, command(t.Context(), "--sample=gadget.yaml")) })
	t.Run("interrupted", func(t *testing.T) { interrupted(t, e, command(t.Context(), "--sample=gadget.yaml")) })
}

// interrupted checks that Ctrl-C stops a run immediately, and that no object remains.
func interrupted(t *testing.T, e *envtest.Environment, cmd *exec.Cmd) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	clients := clientFor(t, e)
	gadgets := "/apis/workshop.example.com/v1/gadgets"
	names := func(ctx context.Context) string {
		data, err := clients.RESTClient().Get().AbsPath(gadgets).Param("labelSelector",
			"conformance.example.com/check").Do(ctx).Raw()
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	e.Eventually(t, "objects of the run", time.Minute, func(ctx context.Context) error {
		if !strings.Contains(names(ctx), `"name":"conformance-`) {
			return errors.New("there are none")
		}
		return nil
	})
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 ||
		!strings.Contains(out.String(), "interrupted; all created objects are deleted") {
		t.Errorf("after SIGINT: %v and %q, want exit code 1", err, out.String())
	}
	if left := names(t.Context()); strings.Contains(left, `"name":"conformance-`) {
		t.Errorf("after SIGINT there is %s", left)
	}
	nothingLeft(t, e)
}

// nothingLeft fails the test for objects with the label of a run that are not being deleted. The
// resource types are those in docs/reference/conformance.md.
func nothingLeft(t *testing.T, e *envtest.Environment) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(string(data), "\nkubectl delete ")
	command, _, _ = strings.Cut(command, "\n")
	stdout, stderr, err := (envtest.Kubectl{}).Run(t.Context(), e,
		append([]string{"get", "-o=json"}, strings.Fields(command)...)...)
	if err != nil || !strings.HasSuffix(command, " -l conformance.example.com/run") {
		t.Fatalf("kubectl get %s: %v\n%s", command, err, stderr)
	}
	list := metav1.PartialObjectMetadataList{}
	if err := json.Unmarshal([]byte(stdout), &list); err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		if item.DeletionTimestamp == nil {
			t.Errorf("%s %s is left", item.Kind, item.Name)
		}
	}
}

// hangingDiscovery checks that a second Ctrl-C stops a run that waits for a server that does not
// respond.
func hangingDiscovery(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	received := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		received <- struct{}{}
		<-req.Context().Done()
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	scripttest.Write(t, kubeconfig, `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
		"clusters": [{"name": "c", "cluster": {"server": "`+server.URL+`"}}]}`)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	<-received
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its result is checked below
		close(done)
	}()
	for range 600 { // the run handles the first signal, the system the second; there may be a gap between them
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // it may have exited
		select {
		case <-done:
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() {
				t.Errorf("after %s: %s, want that the signal ended it", time.Since(began), cmd.ProcessState)
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Error("the second signal did not end the command")
}

func clientFor(t *testing.T, e *envtest.Environment) *kubernetes.Clientset {
	t.Helper()
	config, err := e.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

// hanging never responds to some requests.
type hanging struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (h hanging) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasPrefix(req.URL.Path, "/apis/workshop.example.com/v1/namespaces/") && req.Method == http.MethodGet {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return h.next.RoundTrip(req)
}

// TestHangingServer checks that a run ends at its deadline, reports the checks that it waited
// for, and deletes the objects that it created.
func TestHangingServer(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped in short mode: the cleanup waits for the hanging server for a minute")
	}
	e := envtest.New(t, envtest.Options{})
	config, err := e.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	target := one(t, config, "widgets.v1.workshop.example.com")
	target.Config = rest.CopyConfig(config)
	target.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { return hanging{next} })
	target.Timeout, target.CheckTimeout = 10*time.Second, 3*time.Second
	began := time.Now()
	report, err := conformance.Execute(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	// The cleanup takes at most a minute. The rest allows for a busy machine.
	if took := time.Since(began); took > 3*time.Minute {
		t.Errorf("the run took %s with a timeout of 10 s", took)
	}
	var late, skipped int
	for _, result := range report.Results {
		message := strings.Join(result.Messages, " ")
		if result.Outcome == conformance.Failed && strings.Contains(message, "the check took longer than 3s") {
			late++
		}
		if result.Outcome == conformance.Skipped && strings.Contains(message, "the run took longer than 10s") {
			skipped++
		}
	}
	if late == 0 || skipped == 0 {
		t.Errorf("got %d checks that took too long and %d that were skipped for the time, want both", late, skipped)
	}
	nothingLeft(t, e)
}
