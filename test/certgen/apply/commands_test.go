// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/pkg/envtest"
)

// certgen runs the command for the Service of the environment. It fails the test unless the
// command exits with the given code.
func certgen(t *testing.T, e *envtest.Environment, exit int, args ...string) (stdout, stderr string) {
	t.Helper()
	kubeconfig, err := e.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	args = append(args, "--kubeconfig="+kubeconfig, "--service="+envtest.ServiceName, "--namespace="+envtest.Namespace)
	var out, errOut strings.Builder
	cmd := exec.CommandContext(t.Context(), e.Certgen(), args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	code := 0
	err = cmd.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		code = failed.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if code != exit {
		t.Errorf("certgen %q: got exit code %d, want %d; it printed\n%s%s", args, code, exit, &out, &errOut)
	}
	if strings.Contains(out.String()+errOut.String(), "PRIVATE KEY") {
		t.Error("a key is in the output")
	}
	return out.String(), errOut.String()
}

func match(t *testing.T, text string, patterns ...string) {
	t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile("(?m)" + p).MatchString(text) {
			t.Errorf("no %q in:\n%s", p, text)
		}
	}
}

// TestCommands runs certgen apply and certgen verify on the command line, against a real
// kube-apiserver.
func TestCommands(t *testing.T) {
	e := envtest.New(t, envtest.Options{})
	args := []string{"apply", "--dir=" + e.PKI(), "--secret=" + secretName}
	stdout, stderr := certgen(t, e, 0, append(args, "--dry-run")...)
	match(t, stdout, `^PLAN +OBJECT +REASON$`, `^created +Secret workshop-system/`+secretName+` +not found$`,
		`^accepted +APIService v1\.`, `^Dry run: the cluster accepted`)
	if stderr != "" {
		t.Errorf("got %s on standard error", stderr)
	}
	stdout, _ = certgen(t, e, 0, args...)
	match(t, stdout, `^replaced +APIService v1\..* certgen does not own the caBundle yet$`,
		`^applied +Secret workshop-system/`)
	stdout, _ = certgen(t, e, 0, args...)
	match(t, stdout, `^unchanged +APIService v1\.`, `^unchanged +Secret `, `^Nothing was written\.$`)
	stdout, _ = certgen(t, e, 0, append(args, "-o=json")...)
	var plan certs.Report
	if err := json.Unmarshal([]byte(stdout), &plan); err != nil || plan.Kind != "ApplyReport" || len(plan.Items) < 2 {
		t.Errorf("got %+v, %v", plan, err)
	}

	other := t.TempDir()
	if _, err := certs.Init(t.Context(), certs.InitOptions{Dir: other,
		Service: certs.Service{Name: envtest.ServiceName, Namespace: envtest.Namespace}}); err != nil {
		t.Fatal(err)
	}
	stdout, stderr = certgen(t, e, 1, "apply", "--dir="+other)
	match(t, stderr, `^certgen: APIService v1\..*: expected the field manager certgen to own spec\.caBundle, found "apply.test"`)
	if stdout != "" {
		t.Errorf("a plan that is refused: got %s on standard output", stdout)
	}

	endings := []string{"check-expiration", "--secret=" + secretName}
	stdout, stderr = certgen(t, e, 0, endings...)
	match(t, stdout, `^endpoint localhost:\d+ +CN=extension-apiserver.workshop-system.svc +20\S+ +(89|90)d +20\S+ +extension-apiserver-serving-ca@\S+/[0-9a-f]{8} +ok$`,
		`^Secret workshop-system/`+secretName+` .* ok$`,
		`^extension-apiserver-serving-ca@\S+ \(signing\) .* 182\dd +2 +Secret workshop-system/`+secretName+` ca.crt \(1 of 1\), APIService v1\.\S+ \(1 of 1\), .* ok$`,
		`^front-proxy-ca@\S+ .* ConfigMap kube-system/extension-apiserver-authentication requestheader-client-ca-file \(1 of 1\) +ok$`,
		` ConfigMap kube-system/extension-apiserver-authentication client-ca-file \(1 of 1\) +ok$`)
	if stderr != "" {
		t.Errorf("got %s on standard error", stderr)
	}
	stdout, stderr = certgen(t, e, 1, append(endings, "--fail-within=100d", "-o=json")...)
	match(t, stderr, `^certgen: endpoint localhost:\d+: endpoint localhost:\d+ is due, valid until .*; renew it: certgen renew, or certgen rotate serving$`)
	var ends verify.ExpirationReport
	if err := json.Unmarshal([]byte(stdout), &ends); err != nil || ends.Kind != "ExpirationReport" ||
		ends.Summary[verify.StateDue] != 2 || ends.Certificates[0].Source != "endpoint" {
		t.Errorf("got %+v, %v; want the endpoint and the Secret due", ends, err)
	}
	// An address on which nothing listens is an error, not a success.
	_, stderr = certgen(t, e, 1, "check-expiration", "--endpoint=localhost:1")
	match(t, stderr, `^certgen: K12 endpoint localhost:1: .*connection refused`)

	check := []string{"verify", "--kube-apiserver=" + e.KubeAPIServers[0].URL, "--secret=" + secretName}
	proxy := "--front-proxy-client=" + filepath.Join(e.PKI(), certs.FrontProxyClientDir)
	stdout, stderr = certgen(t, e, 0, append(check, proxy, "--strict", "--dir="+e.PKI())...)
	match(t, stdout, `^OBJECT +DETAIL +EXPIRES +RESULT$`,
		`^endpoint localhost:\d+ +CN=extension-apiserver.workshop-system.svc +20\S+ +ok$`,
		`^ok: \d+ checked, 0 errors, 0 warnings, 0 infos$`)
	if stderr != "" {
		t.Errorf("got %s on standard error", stderr)
	}
	stdout, stderr = certgen(t, e, 1, append(check, "--front-proxy-client="+filepath.Join(other,
		certs.FrontProxyClientDir))...)
	match(t, stdout, `^endpoint localhost:\d+ .* ERROR$`, `^error P11 endpoint localhost:\d+\n +found +the endpoint responded with 401`,
		`^FAILED: \d+ checked, 1 errors`)
	match(t, stderr, `^certgen: P11 endpoint localhost:\d+: the endpoint responded with 401: `)
	stdout, _ = certgen(t, e, 1, append(check, "--dir="+other, "-o=json")...)
	var report verify.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || report.Kind != "LiveReport" ||
		report.Summary.Errors != 1 || report.Findings[0].ID != "K06" {
		t.Errorf("got %+v, %v; want K06", report, err)
	}
}
