// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/pkg/envtest"
)

// TestShipped: every combination in konnectivity/, with certgen's certificates, has no findings.
func TestShipped(t *testing.T) {
	t.Parallel()
	for _, c := range combinations() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			dir := newSet(t, c.files(t))
			report := check(t, dir)
			parts := slices.DeleteFunc(slices.Clone(report.Checked),
				func(c verify.Checked) bool { return c.Certificate != nil })
			if len(report.Findings) > 0 || report.Failed(true) || len(parts) != 4 || len(report.Checked) < 6 {
				t.Errorf("got %+v and %+v, want 4 parts, 2 pairs or more, and no findings", report.Checked,
					report.Findings)
			}
			s, err := load(dir, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range slices.Concat(s.servers, s.agents) {
				accepted(t, p)
				sane(t, p)
			}
			for _, p := range s.servers {
				saneServer(t, p)
			}
			for _, p := range s.agents {
				saneAgent(t, p, s.servers[0])
			}
		})
	}
}

// TestIPv6Only: the same manifests work in a cluster without IPv4, with IPv6 addresses.
func TestIPv6Only(t *testing.T) {
	t.Parallel()
	for _, c := range combinations() {
		files := c.files(t)
		for name, text := range files {
			files[name] = strings.NewReplacer("konnectivity.example.com", ipv6.agentServer, "https://127.0.0.1:8131",
				"https://[::1]:8131", "--server-bind-address=127.0.0.1", "--server-bind-address=::1", "10.96.0.0/16",
				"fd00:96::/112").Replace(text)
		}
		dir := newSet(t, files)
		remove()(t, dir)
		if err := newPKI(pair(dir), ipv6); err != nil {
			t.Fatal(err)
		}
		if report := check(t, dir); len(report.Findings) > 0 {
			t.Errorf("%s: got %+v, want no findings", c, report.Findings)
		}
	}
}

// TestDefaults: an omitted flag has the programs' default value.
func TestDefaults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		set     shipped
		replace []string
	}{
		{static, []string{"    - --mode=grpc\n", ""}},
		{tcp, []string{"    - --server-port=8131\n", "", "https://127.0.0.1:8131", "https://127.0.0.1:8090"}},
		{static, []string{"\n    - --lease-namespace=konnectivity-leases\n", "\n",
			"--lease-namespace=konnectivity-leases", "--lease-namespace=kube-system"}},
	} {
		files, replaced := tc.set.files(t), strings.NewReplacer(tc.replace...)
		changed := 0
		for name, text := range files {
			if files[name] = replaced.Replace(text); files[name] != text {
				changed++
			}
		}
		if report := check(t, newSet(t, files)); changed == 0 || len(report.Findings) > 0 {
			t.Errorf("%q: %d files changed, got %+v, want no findings", tc.replace, changed, report.Findings)
		}
	}
}

// TestFindingsPerContainer: a finding about one container of a pod is counted only for that
// container.
func TestFindingsPerContainer(t *testing.T) {
	t.Parallel()
	files := sidecar.files(t)
	for name, text := range files {
		files[name] = strings.ReplaceAll(text, "- --mode=grpc", "- --mode=http-connect")
	}
	faulty := map[string]int{}
	for _, c := range check(t, newSet(t, files)).Checked {
		if c.Errors > 0 {
			faulty[c.Object[strings.LastIndex(c.Object, "/")+1:]] = c.Errors
		}
	}
	if diff := cmp.Diff(map[string]int{"kube-apiserver container konnectivity-server": 1}, faulty); diff != "" {
		t.Errorf("errors by object (-want +got):\n%s", diff)
	}
}

// TestListensEverywhere: a server that listens on all addresses is reachable at each of them.
func TestListensEverywhere(t *testing.T) {
	t.Parallel()
	for bind, url := range map[string]string{"": "https://[::1]:8131", "::0": "https://127.0.0.1:8131",
		"0.0.0.0": "https://127.0.0.1:8131"} {
		files := tcp.files(t)
		for name, text := range files {
			files[name] = strings.NewReplacer("https://127.0.0.1:8131", url, "--server-bind-address=127.0.0.1",
				"--server-bind-address="+bind).Replace(text)
		}
		if report := check(t, newSet(t, files)); len(report.Findings) > 0 {
			t.Errorf("%q: got %+v, want no findings", bind, report.Findings)
		}
	}
}

// accepted checks that the program itself, with its own option package, accepts all flags and
// their combination.
func accepted(t *testing.T, p *program) {
	t.Helper()
	if out := validate(t, p, p.container.Args...); !strings.Contains(out, valid[p.container.Name]) {
		t.Errorf("%s %q: got\n%s\nwant it to fail with %q, after its options were validated", p.container.Name,
			p.container.Args, out, valid[p.container.Name])
	}
}

// valid contains the errors of programs that have validated their options and then find no data
// in their files.
var valid = map[string]string{serverName: "failed to load kubernetes client config",
	agentName: "failed to run proxy connection"}

// validate runs a program with empty files, so that it exits before it serves or connects, and
// returns its output.
func validate(t *testing.T, p *program, args ...string) string {
	t.Helper()
	var empty []string
	for _, arg := range args {
		if name, value, _ := strings.Cut(arg, "="); strings.HasPrefix(value, "/") && name != "--uds-name" {
			arg = name + "=" + os.DevNull
		}
		empty = append(empty, arg)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary(p), empty...).CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		t.Errorf("%s %q: %v; run make controlplane if there is no such program\n%.300s", binary(p), empty, err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

func binary(p *program) string {
	name := map[string]string{serverName: serverImage, agentName: agentImage}[p.container.Name]
	return filepath.Join(root, "bin", envtest.DefaultMinor, name)
}

// TestRejectedFlags: the test detects flags that the programs reject.
func TestRejectedFlags(t *testing.T) {
	t.Parallel()
	s, err := load(newSet(t, static.files(t)), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		program *program
		arg     string
		want    string
	}{
		"misspelt":    {s.servers[0], "--servre-count=1", "unknown flag"},
		"no duration": {s.servers[0], "--keepalive-time=30", "invalid argument"},
		"flags of two ways": {s.servers[0], "--cluster-ca-cert=/ca.crt",
			"can not be used when agent authentication is enabled"},
		"misspelt agent's": {s.agents[0], "--sync-intervall=5s", "unknown flag"},
		"interval and cap": {s.agents[0], "--sync-interval=60s", "must be less than sync interval cap"},
	} {
		if out := validate(t, tc.program, append(slices.Clone(tc.program.container.Args),
			tc.arg)...); !strings.Contains(out, tc.want) {
			t.Errorf("%s: got %q, want %q", name, out, tc.want)
		}
	}
}

// pinned returns the version of konnectivity that the tests in test/konnectivity run.
func pinned(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "controlplane", "pins", "konnectivity.mod"))
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`sigs\.k8s\.io/apiserver-network-proxy (v\S+)`).FindSubmatch(data)
	if match == nil {
		t.Fatalf("konnectivity.mod does not require apiserver-network-proxy:\n%s", data)
	}
	return string(match[1])
}

// sane checks what must hold for both servers and agents.
func sane(t *testing.T, p *program) {
	t.Helper()
	for _, arg := range p.container.Args {
		for _, match := range variable.FindAllStringSubmatch(arg, -1) {
			if !slices.ContainsFunc(p.container.Env, func(e corev1.EnvVar) bool { return e.Name == match[1] }) {
				t.Errorf("%s: %s has a variable that is not in env", p, arg)
			}
		}
	}
	if _, tag, _ := strings.Cut(p.container.Image, ":"); tag != pinned(t) {
		t.Errorf("%s: the image is %s, want the version of the tests, %s", p, p.container.Image, pinned(t))
	}
	if p.kind != "Pod" && p.pod.Spec.NodeSelector[corev1.LabelOSStable] != string(corev1.Linux) {
		t.Errorf("%s: node selector %v, want Linux", p, p.pod.Spec.NodeSelector)
	}
	if user, group := p.user(); user == nil || *user != 65532 || group == nil || *group != 65532 {
		t.Errorf("%s: user %v and group %v, want those of the image", p, user, group)
	}
}

func saneServer(t *testing.T, p *program) {
	t.Helper()
	within := func(flag string, least, most time.Duration) time.Duration {
		d, err := time.ParseDuration(p.flags[flag])
		if err != nil || d < least || d > most {
			t.Errorf("%s: --%s=%s, %v; want %s to %s", p, flag, p.flags[flag], err, least, most)
		}
		return d
	}
	within("keepalive-time", time.Second, time.Minute)
	// An agent gives up a dial after 5 s, kube-apiserver after 30 s.
	within("backend-dial-timeout", 6*time.Second, 29*time.Second)
	grace := 30 * time.Second // Kubernetes' default
	if s := p.pod.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	within("graceful-shutdown-timeout", time.Second, grace-time.Second)
	if p.container.LivenessProbe.HTTPGet.Path != "/healthz" {
		t.Error("the liveness probe waits for an agent")
	}
	if ready := p.container.ReadinessProbe.HTTPGet.Path; p.kind != "Pod" && ready != "/healthz" {
		t.Errorf("the sidecar's readiness is %s: kube-apiserver waits for an agent, which waits for kube-apiserver",
			ready)
	}
}

func saneAgent(t *testing.T, p, server *program) {
	t.Helper()
	// The server disconnects agents that ping more often than every 30 s.
	if d, err := time.ParseDuration(p.flags["keepalive-time"]); err != nil || d < 30*time.Second || d > 5*time.Minute {
		t.Errorf("%s: --keepalive-time=%s", p, p.flags["keepalive-time"])
	}
	if p.flags["proxy-server-port"] != server.flags["agent-port"] {
		t.Errorf("%s: --proxy-server-port=%s, the server has --agent-port=%s", p, p.flags["proxy-server-port"],
			server.flags["agent-port"])
	}
	file := p.flags["service-account-token-path"]
	if file == "" {
		return
	}
	if p.meta.Namespace != server.flags["agent-namespace"] ||
		p.pod.Spec.ServiceAccountName != server.flags["agent-service-account"] {
		t.Errorf("%s: ServiceAccount %s/%s, the server wants %v", p, p.meta.Namespace,
			p.pod.Spec.ServiceAccountName, server.flags)
	}
	v, _ := p.volumeAt(file)
	if v == nil || v.Projected == nil ||
		v.Projected.Sources[0].ServiceAccountToken.Audience != server.flags["authentication-audience"] {
		t.Errorf("%s: the token at %s is from %+v, want the audience %s", p, file, v,
			server.flags["authentication-audience"])
	}
}
