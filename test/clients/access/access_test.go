// SPDX-License-Identifier: Apache-2.0

// Package access tests the access paths that docs/operate/access.md describes, with real
// programs.
package access

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/envtest"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/test/clients/console"
)

const gadgets = "/apis/workshop.example.com/v1/gadgets"

var (
	widgets    = v1.SchemeGroupVersion.WithResource("widgets")
	widgetFile = filepath.Join("..", "..", "..", "sample", "objects", "widget.yaml")
)

var shared *envtest.Environment

func TestMain(m *testing.M) { os.Exit(envtest.Main(m, envtest.Options{}, &shared)) }

// section returns a section of docs/operate/access.md.
func section(t *testing.T, heading string) string {
	t.Helper()
	return scripttest.Section(t, filepath.Join("..", "..", "..", "docs", "operate", "access.md"), heading)
}

// newWidget creates the object "e" in a new namespace, and returns the namespace.
func newWidget(t *testing.T, e *envtest.Environment) (namespace string) {
	t.Helper()
	data, err := os.ReadFile(widgetFile)
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &obj.Object); err != nil {
		t.Fatal(err)
	}
	namespace = e.NewNamespace(t)
	obj.SetNamespace(namespace)
	obj.SetName("e")
	client, err := dynamic.NewForConfig(e.Admin(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Resource(widgets).Namespace(namespace).Create(t.Context(), obj,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return namespace
}

// lines collects the output lines of a program. It is safe for concurrent use.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) have() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// start runs a program until the end of the test. It waits for a line that contains ready, unless
// ready is empty.
func start(t *testing.T, e *envtest.Environment, ready string, name string, args ...string) *lines {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := e.StartCommand(cmd); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	_ = in.Close() // the program has its own copy
	l, ended := &lines{}, make(chan struct{})
	go func() {
		defer close(ended)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			l.mu.Lock()
			l.all = append(l.all, scanner.Text())
			l.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the error is expected, because the program was killed
		<-ended
		_ = out.Close()
	})
	l.await(t, e, ready)
	return l
}

// await waits for a line that contains text.
func (l *lines) await(t *testing.T, e *envtest.Environment, text string) {
	t.Helper()
	e.Eventually(t, "a line with "+text, envtest.WaitTimeout, func(context.Context) error {
		have := strings.Join(l.have(), "\n")
		if !strings.Contains(have, text) {
			return fmt.Errorf("the lines are:\n%s", have)
		}
		return nil
	})
}

// proxy is a running proxy.
type proxy struct {
	url *url.URL
	log *lines
}

// proxies starts a proxy of each kind.
var proxies = map[string]func(t *testing.T, e *envtest.Environment, port string) *proxy{
	"HTTP": func(t *testing.T, e *envtest.Environment, port string) *proxy {
		config := filepath.Join(t.TempDir(), "tinyproxy.conf")
		scripttest.Write(t, config, "Port "+port+"\nListen 127.0.0.1\nTimeout 600\nLogLevel Info\n")
		return &proxy{&url.URL{Scheme: "http", Host: "127.0.0.1:" + port},
			start(t, e, "Accepting connections", "tinyproxy", "-d", "-c", config)}
	},
	"SOCKS5": func(t *testing.T, e *envtest.Environment, port string) *proxy {
		p := &proxy{&url.URL{Scheme: "socks5", Host: "127.0.0.1:" + port},
			start(t, e, "", "microsocks", "-i", "127.0.0.1", "-p", port)}
		e.Eventually(t, "microsocks to listen", envtest.WaitTimeout, func(ctx context.Context) error {
			conn, err := e.KubeAPIServers[0].Dial(ctx, p.url.Host)
			if err == nil {
				err = conn.Close()
			}
			return err
		})
		return p
	},
}

var connected = regexp.MustCompile(`(?:CONNECT |connected to )(\S+:\d+)`)

// reached returns the addresses that the proxy connected to.
func (p *proxy) reached() (out []string) {
	for _, line := range p.log.have() {
		if match := connected.FindStringSubmatch(line); match != nil {
			out = append(out, match[1])
		}
	}
	return out
}

// kubeconfig returns the administrator's kubeconfig with the proxy set, by the command on the
// page.
func (p *proxy) kubeconfig(t *testing.T, e *envtest.Environment) string {
	t.Helper()
	path, err := e.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	command := strings.ReplaceAll(scripttest.Blocks(section(t, "Through an HTTP or SOCKS5 proxy"))[0],
		"http://proxy.example.com:3128", p.url.String())
	scripttest.Shell(t, t.TempDir(), command, "KUBECONFIG="+path,
		"CLUSTER="+config.Contexts[config.CurrentContext].Cluster,
		"PATH="+filepath.Dir(e.Binary("kubectl"))+":"+os.Getenv("PATH"))
	return path
}

// TestProxyURL checks that kubectl, client-go and certgen send all requests through the proxy of
// the kubeconfig, and that kubectl fails if the proxy is unreachable.
func TestProxyURL(t *testing.T) {
	for kind, run := range proxies {
		t.Run(kind, func(t *testing.T) {
			p := run(t, shared, shared.FreePort(t))
			kubeconfig := p.kubeconfig(t, shared)
			namespace := newWidget(t, shared)
			host := strings.TrimPrefix(shared.Admin(t).Host, "https://")

			if _, stderr, err := (envtest.Kubectl{}).Run(t.Context(), shared, "--kubeconfig="+kubeconfig, "get",
				"widgets", "-A"); err != nil || !slices.Contains(p.reached(), host) {
				t.Errorf("kubectl get: %v %s; the proxy connected to %q, want %s", err, stderr, p.reached(), host)
			}
			t.Run("watch", func(t *testing.T) {
				before := len(p.reached())
				watches(t, kubeconfig)
				if !slices.Contains(p.reached()[before:], host) {
					t.Errorf("the proxy connected to %q, want %s again", p.reached(), host)
				}
			})
			t.Run("watch of kubectl", func(t *testing.T) {
				before, deleted := len(p.reached()), newWidget(t, shared)
				args := []string{"--kubeconfig=" + kubeconfig, "--namespace=" + deleted}
				watch := start(t, shared, "ADDED", shared.Binary("kubectl"),
					append(args, "get", "widgets", "--watch", "--output-watch-events")...)
				if _, stderr, err := (envtest.Kubectl{}).Run(t.Context(), shared,
					append(args, "delete", "widget", "e")...); err != nil {
					t.Fatalf("kubectl delete: %v %s", err, stderr)
				}
				watch.await(t, shared, "DELETED")
				if reached := p.reached()[before:]; len(reached) < 2 {
					t.Errorf("the proxy connected to %q, want %s for each of the two", reached, host)
				}
			})
			t.Run("upgrade", func(t *testing.T) {
				config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
				if err != nil {
					t.Fatal(err)
				}
				before := len(p.reached())
				c := console.Open(t.Context(), t, config, namespace, "e")
				c.Echo(t, "through a proxy")
				if !slices.Contains(p.reached()[before:], host) {
					t.Errorf("the proxy connected to %q, want %s again", p.reached(), host)
				}
			})
			t.Run("certgen", func(t *testing.T) {
				// The endpoint of the Service, by its external name.
				endpoint := strings.Replace(shared.Servers[0].Address(), "127.0.0.1", "localhost", 1)
				_, number, _ := strings.Cut(host, ":")
				single := "localhost:" + number // a kube-apiserver at another address than in the kubeconfig
				for _, tc := range []struct {
					args []string
					want []string
				}{
					{[]string{"verify"}, []string{host, endpoint}},
					{[]string{"check-expiration"}, []string{host, endpoint}},
					{[]string{"renew", "--dir=" + shared.PKI()}, []string{host}},
					{[]string{"apply", "--dir=" + shared.PKI()}, []string{host}},
					{[]string{"rotate", "serving", "--dir=" + shared.PKI(), "--kube-apiserver=https://" + single,
						"--hold=2s"}, []string{host, single, endpoint}},
				} {
					before := len(p.reached())
					out := certgen(t, shared, kubeconfig, nil, tc.args...)
					for _, address := range tc.want {
						if reached := p.reached()[before:]; !slices.Contains(reached, address) {
							t.Errorf("certgen %v: the proxy connected to %q, want %s\n%s", tc.args,
								reached, address, out)
						}
					}
				}
			})
			gone := (&proxy{url: &url.URL{Scheme: p.url.Scheme, Host: "127.0.0.1:1"}}).kubeconfig(t, shared)
			if _, stderr, err := (envtest.Kubectl{}).Run(t.Context(), shared, "--kubeconfig="+gone, "-v=6", "get",
				"widgets"); err == nil || !strings.Contains(stderr, "127.0.0.1:1:") {
				t.Errorf("without the proxy: %v and\n%s\nwant that nothing goes another way, and the proxy named", err,
					stderr)
			}
		})
	}
}

// watches checks that a client-go watch receives a created object.
func watches(t *testing.T, kubeconfig string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), envtest.WaitTimeout)
	defer cancel()
	watcher, err := client.Resource(widgets).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	namespace := newWidget(t, shared)
	for event := range watcher.ResultChan() {
		if obj, ok := event.Object.(metav1.Object); ok && obj.GetNamespace() == namespace {
			return
		}
	}
	t.Error("the watch ended without the object")
}

// certgen runs a command that connects to kube-apiservers and, except for apply, to the Service's
// endpoints.
func certgen(t *testing.T, e *envtest.Environment, kubeconfig string, environment []string, args ...string) string {
	t.Helper()
	var out strings.Builder
	cmd := exec.CommandContext(t.Context(), e.Certgen(),
		append(args, "--service="+envtest.ServiceName, "--namespace="+envtest.Namespace, "--kubeconfig="+kubeconfig)...)
	cmd.Env = append(cmd.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := e.StartCommand(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("certgen %v: %v\n%s", args, err, out.String())
	}
	return out.String()
}

// TestKubectlProxy checks the commands of the page and the effects of the flags in its table.
func TestKubectlProxy(t *testing.T) {
	kubeconfig, err := shared.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, block := range scripttest.Blocks(section(t, "Through kubectl proxy")) {
		out := scripttest.Shell(t, dir, strings.ReplaceAll(block, "8001", shared.FreePort(t)),
			"KUBECONFIG="+kubeconfig, "PATH="+filepath.Dir(shared.Binary("kubectl"))+":"+os.Getenv("PATH"))
		if !strings.Contains(out, `"kind": "WidgetList"`) && !strings.Contains(out, `"kind":"WidgetList"`) {
			t.Errorf("%s\ngot\n%s\nwant the list", block, out)
		}
	}

	namespace := newWidget(t, shared)
	path := "/apis/workshop.example.com/v1/namespaces/" + namespace + "/widgets/e/console"
	for _, tc := range []struct {
		name   string
		flags  []string
		method string
		path   string
		header http.Header
		want   int
	}{
		{"prefix", []string{"--api-prefix=/k8s/"}, "GET", "/k8s" + gadgets, nil, 200},
		{"host", nil, "GET", gadgets, http.Header{"Host": {"evil.example.com"}}, 403},
		{"other hosts", []string{"--accept-hosts=^evil[.]example[.]com$"}, "GET", gadgets,
			http.Header{"Host": {"evil.example.com"}}, 200},
		{"console", nil, "GET", path, upgrade, 101},
		{"read-only", []string{"--reject-methods=POST,PUT,PATCH,DELETE"}, "GET", gadgets, nil, 200},
		{"read-only, a write", []string{"--reject-methods=POST,PUT,PATCH,DELETE"}, "POST", gadgets, nil, 403},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp := do(t, tc.method, kubectlProxy(t, kubeconfig, tc.flags...)+tc.path, tc.header)
			defer resp.Body.Close()
			if resp.StatusCode != tc.want {
				t.Errorf("got %s, want %d", resp.Status, tc.want)
			}
		})
	}
	t.Run("watch", func(t *testing.T) {
		resp := do(t, "GET", kubectlProxy(t, kubeconfig)+strings.TrimSuffix(path, "/e/console")+"?watch=true", nil)
		defer resp.Body.Close()
		var event metav1.WatchEvent
		if err := json.NewDecoder(resp.Body).Decode(&event); err != nil || event.Type != "ADDED" ||
			!strings.Contains(string(event.Object.Raw), `"name":"e"`) {
			t.Errorf("got %s, %v and the event %s %s; want the existing widget", resp.Status, err, event.Type,
				event.Object.Raw)
		}
	})
}

// kubectlProxy starts kubectl proxy and returns its URL.
func kubectlProxy(t *testing.T, kubeconfig string, flags ...string) string {
	t.Helper()
	port := shared.FreePort(t)
	start(t, shared, "Starting to serve", shared.Binary("kubectl"),
		append([]string{"--kubeconfig=" + kubeconfig, "proxy", "--port=" + port}, flags...)...)
	return "http://127.0.0.1:" + port
}

func do(t *testing.T, method, url string, header http.Header) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), envtest.WaitTimeout)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = header.Get("Host")
	maps.Copy(req.Header, header)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// upgrade holds the headers that open a WebSocket to a console.
var upgrade = http.Header{
	"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
	"Sec-Websocket-Key":      {"dGhlIHNhbXBsZSBub25jZQ=="},
	"Sec-Websocket-Protocol": {"v5.channel.k8s.io"},
}

// TestProxyVariables checks that HTTPS_PROXY in the environment redirects the server's reviews
// and its connections to etcd, and that NO_PROXY excludes addresses. certgen uses the proxy for
// kube-apiservers, but not for endpoints.
func TestProxyVariables(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root: run the tests as root")
	}
	const nowhere = "HTTPS_PROXY=http://127.0.0.1:1"
	options := envtest.Options{Network: envtest.EndpointRouting, ExternalEtcd: true}
	// 10.130.0.1 is the address of kube-apiserver.
	for except, want := range map[string]string{".svc": "proxyconnect", "10.130.0.1,.svc": "check --etcd-servers"} {
		options.ServerEnv = []string{nowhere, "NO_PROXY=" + except}
		if e, err := envtest.Start(t.Context(), options); err == nil {
			t.Errorf("the server started although it reaches only %s: %v", except, e.Stop())
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("with NO_PROXY=%s: got %v, want %q", except, err, want)
		}
	}

	options.ServerEnv = []string{nowhere, "NO_PROXY=10.0.0.0/8,.svc"}
	e := envtest.New(t, options)
	newWidget(t, e)
	p := proxies["HTTP"](t, e, "3128")
	kubeconfig, err := e.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	variable := "HTTPS_PROXY=" + p.url.String()
	if _, stderr, err := (envtest.Kubectl{Env: []string{variable}}).Run(t.Context(), e, "get", "widgets",
		"-A"); err != nil || len(p.reached()) == 0 {
		t.Errorf("kubectl get: %v %s; the proxy connected to %q", err, stderr, p.reached())
	}
	for _, args := range [][]string{{"verify"}, {"rotate", "serving", "--dir=" + e.PKI(), "--hold=2s"}} {
		before := len(p.reached())
		certgen(t, e, kubeconfig, []string{variable}, args...)
		if after := p.reached()[before:]; len(after) == 0 || slices.Contains(after, e.Servers[0].Address()) {
			t.Errorf("for certgen %v, the proxy connected to %q, want kube-apiserver and not the endpoint %s", args,
				after, e.Servers[0].Address())
		}
	}
	before := len(p.reached())
	certgen(t, e, kubeconfig, []string{variable, "NO_PROXY=10.0.0.0/8"}, "verify")
	if after := p.reached()[before:]; len(after) > 0 {
		t.Errorf("for certgen verify with NO_PROXY, the proxy connected to %q, want nothing", after)
	}
	webhooks(t, e)
}

// webhooks checks that webhooks at addresses in NO_PROXY are called directly, and others through
// the proxy. No process listens at either address.
func webhooks(t *testing.T, e *envtest.Environment) {
	t.Helper()
	client, err := e.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	widget, err := os.ReadFile(widgetFile)
	if err != nil {
		t.Fatal(err)
	}
	configurations := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	for address, proxied := range map[string]bool{"192.0.2.1": true, "10.130.0.1": false} {
		url, sideEffects := "https://"+address+":9/", admissionregistrationv1.SideEffectClassNone
		made, err := configurations.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "proxied-"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "proxied.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url},
				SideEffects: &sideEffects, AdmissionReviewVersions: []string{"v1"},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{APIGroups: []string{widgets.Group},
						APIVersions: []string{"*"}, Resources: []string{widgets.Resource}},
				}},
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		e.Eventually(t, "the webhook at "+address+" to be called", envtest.WaitTimeout, func(ctx context.Context) error {
			_, stderr, err := (envtest.Kubectl{Stdin: string(widget)}).Run(ctx, e, "create",
				"--dry-run=server", "-f", "-")
			if err == nil || !strings.Contains(stderr, url) || strings.Contains(stderr, "proxyconnect") != proxied {
				return fmt.Errorf("got %q, want it called and through the proxy: %t", stderr, proxied)
			}
			return nil
		})
		if err := configurations.Delete(t.Context(), made.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
