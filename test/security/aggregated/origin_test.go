// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/test/clients/console"
)

// friend is the only origin that the shared server allows.
const friend = "https://console.example.com"

var admitFriend = "--cors-allowed-origins=^" + regexp.QuoteMeta(friend) + "$"

// startKubectlProxy starts the real kubectl proxy on a free port, as an administrator, and returns
// its address. The proxy ends with the test.
func startKubectlProxy(t *testing.T, args ...string) string {
	t.Helper()
	kubeconfig, err := shared.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	kubectl := shared.Binary("kubectl")
	cmd := exec.CommandContext(t.Context(), kubectl, append(
		[]string{"--kubeconfig=" + kubeconfig, "proxy", "--port=0"}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.StartCommand(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // killed with the context of the test
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "Starting to serve on ")
	if !ok {
		t.Fatalf("kubectl proxy printed %q (%v) and %q, want its address", line, err, &stderr)
	}
	return address
}

// dialPlain connects without TLS, as to kubectl proxy.
func dialPlain(t *testing.T, address string) *wire {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(envtest.WaitTimeout)); err != nil {
		t.Fatal(err)
	}
	return &wire{conn, bufio.NewReader(conn), address}
}

// TestS52ForeignOrigin checks that a web page cannot open a console or a watch with a user's
// permissions. It uses kubectl proxy, which serves every page in the user's browser, and
// kube-apiserver. Origins that a flag allows can do so.
func TestS52ForeignOrigin(t *testing.T) {
	namespace := shared.NewNamespace(t)
	newWidget(t, shared, namespace, "w")
	proxy := startKubectlProxy(t)
	ways := map[string]func(*testing.T) *wire{
		"kubectl proxy":  func(t *testing.T) *wire { return dialPlain(t, proxy) },
		"kube-apiserver": func(t *testing.T) *wire { return dial(t, shared.Admin(t)) },
	}
	const watch = "watch"
	paths := map[string]string{
		"console": widgetsOf(namespace) + "/w/console",
		watch:     widgetsOf(namespace) + "?watch=1&timeoutSeconds=30",
	}
	for _, tc := range []struct {
		name    string
		origins []string
		// refused is the origin in the error, or "" if the upgrade must succeed.
		refused string
	}{
		{"no Origin", nil, ""},
		{"a foreign page", []string{"http://evil.example"}, "http://evil.example"},
		{"a file or a sandboxed frame", []string{"null"}, "null"},
		{"kubectl proxy's own host", []string{"http://" + proxy}, "http://" + proxy},
		{"the admitted page", []string{friend}, ""},
		{"the admitted host without TLS", []string{"http://console.example.com"}, "http://console.example.com"},
		{"the admitted page and a foreign one", []string{friend, "http://evil.example"}, "http://evil.example"},
	} {
		for way, connect := range ways {
			for what, path := range paths {
				t.Run(tc.name+"/"+way+"/"+what, func(t *testing.T) {
					w := connect(t)
					lines := upgradeLines("websocket")
					for _, origin := range tc.origins {
						lines = append(lines, "Origin: "+origin)
					}
					w.send(t, http.MethodGet, path, "", lines...)
					got, err := w.receive()
					if err != nil {
						t.Fatal(err)
					}
					if tc.refused == "" {
						want := http.StatusSwitchingProtocols
						if what == watch && tc.origins == nil {
							want = http.StatusForbidden // rejected by the library, as for built-in kinds
						}
						if got.Status != want {
							t.Errorf("%s, want %d", got, want)
						}
						return
					}
					var status metav1.Status
					want, reason := http.StatusForbidden, metav1.StatusReasonForbidden
					if what == watch {
						want, reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
					}
					if err := json.Unmarshal(got.Body, &status); err != nil || got.Status != want ||
						status.Reason != reason || !strings.Contains(status.Message,
						`the origin "`+tc.refused+`" is not allowed`) {
						t.Errorf("%s (%v), want %d with a Status that names the origin %s", got, err, want, tc.refused)
					}
				})
			}
		}
	}
}

// TestS52ClientGo checks that the client of client-go, which kubectl exec uses, works: it sends no
// Origin, and any but one would be rejected.
func TestS52ClientGo(t *testing.T) {
	namespace := shared.NewNamespace(t)
	newWidget(t, shared, namespace, "w")
	c := console.Open(t.Context(), t, shared.Admin(t), namespace, "w")
	c.Echo(t, "tick")
	c.Say(t, "exit")
	if err := c.End(t); err != nil {
		t.Errorf("got %v, want success", err)
	}
}

// python is the interpreter that finds the distribution's packages, such as python3-websocket.
const python = "/usr/bin/python3"

// pythonClient opens a console at argv[1] with the settings of argv[2], and prints its output.
const pythonClient = `
import json, sys, websocket
try:
    ws = websocket.create_connection(sys.argv[1], timeout=60, subprotocols=["v5.channel.k8s.io"], **json.loads(sys.argv[2]))
except websocket.WebSocketBadStatusException as e:
    print("refused:", e.status_code)
    sys.exit()
ws.send_binary(b"\x00echo tick\nexit\n")
print(ws.recv(), json.loads(ws.recv()[1:])["status"])
`

// TestS52Python checks that Python's websocket-client, which sends an Origin like a browser, is
// rejected unless the Origin is suppressed.
func TestS52Python(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import websocket").CombinedOutput(); err != nil {
		t.Fatalf("import websocket: %v; scripts/needs.sh test installs it\n%s", err, out)
	}
	namespace := shared.NewNamespace(t)
	newWidget(t, shared, namespace, "w")
	target := "ws://" + startKubectlProxy(t) + widgetsOf(namespace) + "/w/console"
	for settings, want := range map[string]string{
		`{}`:                        "refused: 403\n",
		`{"suppress_origin": true}`: "b'\\x01tick\\n' Success\n",
	} {
		t.Run(settings, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), python, "-c", pythonClient, target, settings).CombinedOutput()
			if err != nil || string(out) != want {
				t.Errorf("got %q (%v), want %q", out, err, want)
			}
		})
	}
}

// TestS52RejectPaths checks that kubectl proxy with the flag in docs/operate/access.md rejects the
// paths of consoles in every notation, and forwards all other paths.
func TestS52RejectPaths(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "operate", "access.md"))
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`--reject-paths='[^']+`).Find(page)
	if match == nil {
		t.Fatal("docs/operate/access.md has no example of --reject-paths")
	}
	// Without the quotes of the shell and the backslashes of the table.
	flag := strings.NewReplacer("'", "", `\|`, "|").Replace(string(match))
	namespace := shared.NewNamespace(t)
	newWidget(t, shared, namespace, "w")
	newWidget(t, shared, namespace, "console")
	rejecting, plain := startKubectlProxy(t, flag), startKubectlProxy(t)
	base := widgetsOf(namespace)
	// kubectl proxy redirects to the cleaned path, and a WebSocket does not follow redirects.
	for path, want := range map[string]int{
		base + "/w/console":       403,
		base + "/w/console/":      403,
		base + "/w/console?x=y":   403,
		base + "/w/%63onsole":     403,
		base + "/w%2Fconsole":     403,
		base + "/console/console": 403,
		base + "/x/../w/console":  307,
		"/" + base + "/w/console": 307,
		strings.Replace(base, "/v1/", "/v1alpha1/", 1) + "/w/console": 403,
		"/api/v1/namespaces/default/pods/p/exec":                      403,
	} {
		t.Run(path, func(t *testing.T) {
			w := dialPlain(t, rejecting)
			w.send(t, http.MethodGet, path, "", upgradeLines("websocket")...)
			if got, err := w.receive(); err != nil || got.Status != want {
				t.Errorf("%s (%v), want %d", got, err, want)
			}
		})
	}
	for path, want := range map[string]int{base + "/w": 200, base + "/console": 200, base + "/w/status": 200} {
		t.Run(path, func(t *testing.T) {
			w := dialPlain(t, rejecting)
			w.send(t, http.MethodGet, path, "")
			if got, err := w.receive(); err != nil || got.Status != want {
				t.Errorf("%s (%v), want %d", got, err, want)
			}
		})
	}
	t.Run("without the flag", func(t *testing.T) {
		w := dialPlain(t, plain)
		w.send(t, http.MethodGet, base+"/w/console", "", upgradeLines("websocket")...)
		if got, err := w.receive(); err != nil || got.Status != http.StatusSwitchingProtocols {
			t.Errorf("%s (%v), want 101", got, err)
		}
	})
}
