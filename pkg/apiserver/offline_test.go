// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/frontproxy"
)

// offline is a complete server of this package in this process, with a stub for kube-apiserver.
type offline struct {
	address string
	dir     string // of its certificates and their CAs
	tls     *tls.Config
	stop    func() // stops the server and waits until it has stopped
}

// startOffline starts the server of the API with its real handler chain, storage and TLS. change
// modifies its configuration, and handlers are added by path. It returns when the server is
// ready.
func startOffline(t *testing.T, api API, change func(*serverConfig), handlers map[string]http.HandlerFunc) *offline {
	t.Helper()
	dir := t.TempDir()
	if _, err := certs.Init(t.Context(), certs.InitOptions{Dir: dir,
		Service: certs.Service{Name: "offline", Namespace: "default"}}); err != nil {
		t.Fatal(err)
	}
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	o := mustOptions(api)
	o.DataDir = filepath.Join(dir, "data")
	o.Recommended.CoreAPI.CoreAPIKubeconfigPath = stubKubeAPIServer(t, dir)
	o.Recommended.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	o.Recommended.SecureServing.BindPort = free.Addr().(*net.TCPAddr).Port
	o.Recommended.SecureServing.ServerCert.CertKey.CertFile = filepath.Join(dir, certs.ServingDir, certs.CertFile)
	o.Recommended.SecureServing.ServerCert.CertKey.KeyFile = filepath.Join(dir, certs.ServingDir, certs.KeyFile)
	o.Complete()
	if errs := o.Validate(); len(errs) != 0 {
		t.Fatal(errors.Join(errs...))
	}
	in, err := o.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	storage, err := o.startEtcd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(storage.stop)
	config, err := o.config(in, storage)
	if err != nil {
		t.Fatal(err)
	}
	change(config)
	server, err := config.newServer()
	if err != nil {
		t.Fatal(err)
	}
	for path, handler := range handlers {
		server.generic.Handler.NonGoRestfulMux.Handle(path, handler)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	t.Cleanup(stop)
	s := &offline{address: free.Addr().String(), dir: dir, tls: frontProxyTLS(t, dir), stop: stop}
	s.waitReady(t, ended)
	return s
}

func (s *offline) waitReady(t *testing.T, ended chan error) {
	t.Helper()
	client := s.client("HTTP/2.0")
	defer client.CloseIdleConnections()
	got, deadline := "", time.After(time.Minute)
	for got != "200" {
		got = client.try(t, http.MethodGet, "/readyz", "")
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the server ended: %v", err)
		case <-deadline:
			t.Fatalf("the server is not ready: %s: %s", got, client.get(t, "/readyz?verbose"))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stubKubeAPIServer starts a stub that serves what a server needs to be ready: the trust
// ConfigMap, empty lists for API Priority and Fairness, and reviews that allow everything. It
// does not serve the APIs of admission, which is then disabled. It returns the path of a
// kubeconfig.
func stubKubeAPIServer(t *testing.T, dir string) string {
	t.Helper()
	proxyCA, err := os.ReadFile(filepath.Join(dir, certs.FrontProxyCADir, certs.CertFile))
	if err != nil {
		t.Fatal(err)
	}
	users, err := certs.NewCA(certs.CAOptions{Name: "users", Usage: x509.ExtKeyUsageClientAuth})
	if err != nil {
		t.Fatal(err)
	}
	trust := corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: frontproxy.ConfigMapName},
		Data: map[string]string{
			"client-ca-file":                 string(certs.Bundle{users.Certificate}.PEM()),
			"requestheader-client-ca-file":   string(proxyCA),
			"requestheader-allowed-names":    `["` + certs.FrontProxyUser + `"]`,
			"requestheader-username-headers": `["X-Remote-User"]`,
		},
	}
	const flows = "flowcontrol.apiserver.k8s.io/v1"
	list := func(apiVersion, kind string, items ...any) map[string]any {
		return map[string]any{"apiVersion": apiVersion, "kind": kind,
			"metadata": map[string]any{"resourceVersion": "1"}, "items": append([]any{}, items...)}
	}
	yes := func(kind string) map[string]any {
		return map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": kind,
			"status": map[string]any{"allowed": true}}
	}
	configMaps := "/api/v1/namespaces/" + metav1.NamespaceSystem + "/configmaps"
	responses := map[string]any{
		configMaps: list("v1", "ConfigMapList", trust),
		configMaps + "/" + frontproxy.ConfigMapName: trust,
		"/apis/" + flows: metav1.APIResourceList{GroupVersion: flows,
			APIResources: []metav1.APIResource{{Name: "flowschemas"}, {Name: "prioritylevelconfigurations"}}},
		"/apis/" + flows + "/flowschemas":                        list(flows, "FlowSchemaList"),
		"/apis/" + flows + "/prioritylevelconfigurations":        list(flows, "PriorityLevelConfigurationList"),
		"/apis/authorization.k8s.io/v1/subjectaccessreviews":     yes("SubjectAccessReview"),
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": yes("SelfSubjectAccessReview"),
	}
	ts := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		response, ok := responses[req.URL.Path]
		query := req.URL.Query()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !ok:
			http.NotFound(w, req)
		case query.Get("sendInitialEvents") != "":
			// The client falls back to a list.
			http.Error(w, "no list by watch here", http.StatusBadRequest)
		case query.Get("watch") != "":
			w.(http.Flusher).Flush()
			<-req.Context().Done()
		case req.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			fallthrough
		default:
			_ = json.NewEncoder(w).Encode(response)
		}
	}))
	t.Cleanup(func() { ts.CloseClientConnections(); ts.Close() })
	config := clientcmdapi.NewConfig()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ts.Certificate().Raw})
	config.Clusters["stub"] = &clientcmdapi.Cluster{Server: ts.URL, CertificateAuthorityData: ca}
	config.Contexts["stub"] = &clientcmdapi.Context{Cluster: "stub"}
	config.CurrentContext = "stub"
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// frontProxyTLS returns the TLS configuration of kube-apiserver as a client.
func frontProxyTLS(t *testing.T, dir string) *tls.Config {
	t.Helper()
	client := filepath.Join(dir, certs.FrontProxyClientDir)
	pair, err := tls.LoadX509KeyPair(filepath.Join(client, certs.CertFile), filepath.Join(client, certs.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, certs.ServingCADir, certs.CertFile))
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := certs.ParseBundle(data)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: bundle.Pool(), ServerName: "offline.default.svc",
		MinVersion: tls.VersionTLS12}
}
