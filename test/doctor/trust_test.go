// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/doctor"
	"example.com/extension-apiserver/internal/frontproxy"
	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/envtest"
)

// TestAllowedNames needs a server that tolerates the fault.
func TestAllowedNames(t *testing.T) {
	e := envtest.New(t, envtest.Options{KubeAPIServerArgs: []string{"--requestheader-allowed-names="},
		ServerArgs: []string{"--front-proxy-tolerate=AnyName"}})
	report, err := diagnose(t.Context(), e.Admin(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"P02"}, ids(report)); diff != "" {
		t.Errorf("root causes (-want +got):\n%s\n%s", diff, text(report))
	}
}

// trustFaults are faults of kube-apiserver, which is restarted for each. They are injected into one
// environment, in this order.
var trustFaults = []struct {
	name, id string
	explains []string
	inject   func(*control)
}{
	{"front proxy of another name", "P01", []string{"D03", "A01"}, func(c *control) {
		c.restart(c.proxyFlags(c.frontProxy(), "somebody", nil))
	}},
	{"front proxy of another CA", "P11", []string{"D03", "A01"}, func(c *control) {
		c.restart(c.proxyFlags(newAuthority(c.T, nil), certs.FrontProxyUser, nil))
	}},
	{"expired certificate of the front proxy", "P11", []string{"D03", "A01"}, func(c *control) {
		c.restart(c.proxyFlags(c.frontProxy(), certs.FrontProxyUser,
			func(t *x509.Certificate) { t.NotAfter = time.Now().Add(-time.Hour) }))
	}},
	{"no certificate of the front proxy", "P08", []string{"D03", "A01"}, func(c *control) {
		c.restart(without("--proxy-client"))
	}},
	{"no certificate of the front proxy in a static pod", "P08", []string{"D03", "A01"}, func(c *control) {
		c.restart(without("--proxy-client") + " --feature-gates=ComponentFlagz=false")
		static := pod(metav1.NamespaceSystem, "kube-apiserver", "default")
		static.Labels = map[string]string{"component": "kube-apiserver"}
		static.Spec.Containers[0].Command = []string{"kube-apiserver", "--requestheader-client-ca-file=ca.crt"}
		createPod(c.T, c.env, static, corev1.PodStatus{})
	}},
	{"other headers", "P05", []string{"D03", "A01"}, func(c *control) {
		c.restart(`"$@" --requestheader-username-headers=X-User`)
		c.publish(frontproxy.UsernameHeadersKey, `["X-User"]`)
	}},
	{"CA of the front proxy that expires soon", "P07", nil, func(c *control) {
		ca := newAuthority(c.T, func(t *x509.Certificate) { t.NotAfter = time.Now().Add(90 * time.Second) })
		path := filepath.Join(c.TempDir(), "ca.crt")
		scripttest.Write(c.T, path, string(ca.pem()))
		c.restart(c.proxyFlags(ca, certs.FrontProxyUser, nil) + " --requestheader-client-ca-file=" + path)
		c.publish(frontproxy.CAKey, string(ca.pem()))
	}},
	{"expired CA of the front proxy", "P06", []string{"D03", "A01"}, func(*control) {}},
	{"HTTP proxy of kube-apiserver", "S14", []string{"A01"}, func(c *control) {
		c.publish(frontproxy.CAKey, string(c.frontProxy().pem()))
		c.restart(`"$@"`, "HTTPS_PROXY=http://127.0.0.1:1")
		f := newFixture(c.T, c.env, "proxied")
		f.service(corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "server.example.com"})
		f.registerAt(443, nil)
	}},
	{"API that is not served", "I01", nil, func(c *control) {
		c.restart(`"$@" --enable-priority-and-fairness=false --runtime-config=flowcontrol.apiserver.k8s.io/v1=false`)
	}},
	{"CA of users and the front proxy", "P03", []string{"A01"}, func(c *control) {
		both := filepath.Join(c.TempDir(), "both.crt")
		scripttest.Write(c.T, both, c.read("client-ca")+c.read(certs.FrontProxyCADir))
		c.restart(`"$@" --client-ca-file=` + both)
	}},
	// kube-apiserver does not remove what an earlier one has published.
	{"no aggregation layer", "P04", []string{"A01"}, func(c *control) {
		c.restart(without("--requestheader", "--proxy-client"))
		for _, key := range []string{frontproxy.CAKey, frontproxy.AllowedNamesKey, frontproxy.UsernameHeadersKey,
			frontproxy.UIDHeadersKey, frontproxy.GroupHeadersKey, frontproxy.ExtraHeaderPrefixesKey} {
			c.publish(key, "")
		}
	}},
}

func TestTrust(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped in short mode: kube-apiserver is restarted several times")
	}
	e := envtest.New(t, envtest.Options{})
	c := &control{T: t, env: e}
	// The Service gets a pod whose log is that of the server since the last restart.
	node := startKubelet(t, e, func(string) string {
		data, _ := os.ReadFile(e.Servers[0].Log())
		return string(data[min(c.logged, len(data)):])
	})
	kit := pod(envtest.Namespace, "kit", account)
	kit.Spec.NodeName = node
	createPod(t, e, kit, corev1.PodStatus{})
	selectPods(t, e)
	for _, tc := range trustFaults {
		t.Run(tc.name, func(t *testing.T) {
			c.T = t
			tc.inject(c)
			wantCause(t, e, tc.id, tc.explains...)
		})
	}
}

// control changes the flags and the published trust of a kube-apiserver.
type control struct {
	*testing.T
	env    *envtest.Environment
	logged int // length of the server's log at the last restart
}

// restart restarts the kube-apiserver with the arguments that a shell makes of its own, and with
// additional environment variables.
func (c *control) restart(arguments string, environment ...string) {
	c.Helper()
	program := filepath.Join(c.TempDir(), "kube-apiserver")
	script := fmt.Sprintf("#!/bin/sh\nexec env %s %s %s\n", strings.Join(environment, " "),
		c.env.Binary("kube-apiserver"), arguments)
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil { //nolint:gosec // a program
		c.Fatal(err)
	}
	if err := c.env.UpgradeKubeAPIServer(c.Context(), c.env.KubeAPIServers[0], program); err != nil {
		c.Fatal(err)
	}
	data, err := os.ReadFile(c.env.Servers[0].Log())
	if err != nil {
		c.Fatal(err)
	}
	c.logged = len(data)
}

// without returns the arguments except those of flags with the prefixes.
func without(prefixes ...string) string {
	return `$(printf '%s\n' "$@" | grep -v -e ` + strings.Join(prefixes, " -e ") + ")"
}

// proxyFlags returns the arguments with a certificate of the front proxy that the CA issues.
func (c *control) proxyFlags(ca *authority, name string, change func(*x509.Certificate)) string {
	c.Helper()
	issued := ca.issue(c.T, name, func(t *x509.Certificate) {
		t.DNSNames, t.ExtKeyUsage = nil, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if change != nil {
			change(t)
		}
	})
	key, err := certs.EncodePrivateKey(issued.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		c.Fatal(err)
	}
	dir := c.TempDir()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issued.Certificate[0]})
	scripttest.Write(c.T, filepath.Join(dir, certs.CertFile), string(certificate))
	scripttest.Write(c.T, filepath.Join(dir, certs.KeyFile), string(key))
	return fmt.Sprintf(`"$@" --proxy-client-cert-file=%[1]s/%[2]s --proxy-client-key-file=%[1]s/%[3]s`, dir,
		certs.CertFile, certs.KeyFile)
}

// frontProxy returns the CA of the front proxy.
func (c *control) frontProxy() *authority {
	c.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(c.env.PKI(), certs.FrontProxyCADir, certs.CertFile),
		filepath.Join(c.env.PKI(), certs.FrontProxyCADir, certs.KeyFile))
	if err != nil {
		c.Fatal(err)
	}
	return &authority{pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)}
}

// read returns a certificate of the environment.
func (c *control) read(name string) string {
	c.Helper()
	data, err := os.ReadFile(filepath.Join(c.env.PKI(), name, certs.CertFile))
	if err != nil {
		c.Fatal(err)
	}
	return string(data)
}

// publish replaces a value of the trust ConfigMap, to which kube-apiserver only adds. An empty
// value removes it.
func (c *control) publish(key, value string) {
	c.Helper()
	patch := map[string]map[string]*string{"data": {key: &value}}
	if value == "" {
		patch["data"][key] = nil
	}
	data, err := json.Marshal(patch)
	if err != nil {
		c.Fatal(err)
	}
	if _, err := c.env.Client(c.T).CoreV1().ConfigMaps(frontproxy.Namespace).Patch(c.Context(),
		frontproxy.ConfigMapName, types.MergePatchType, data, metav1.PatchOptions{}); err != nil {
		c.Fatal(err)
	}
}

// wantCause waits until the only root cause is the one with the ID, and explains the findings.
func wantCause(t *testing.T, e *envtest.Environment, id string, explains ...string) {
	t.Helper()
	var report *doctor.Report
	e.Eventually(t, id, 3*envtest.WaitTimeout, func(context.Context) error {
		var err error
		if report, err = diagnoseWith(t.Context(), e.Admin(t), doctor.Options{Pre: true}); err != nil {
			return err
		}
		if !slices.Equal(ids(report), []string{id}) {
			return errors.New(text(report))
		}
		for _, want := range explains {
			if !slices.ContainsFunc(report.RootCauses, func(c doctor.Cause) bool {
				return slices.ContainsFunc(c.Explains, func(f doctor.Finding) bool { return f.ID == want })
			}) {
				return fmt.Errorf("want %s explained\n%s", want, text(report))
			}
		}
		return nil
	})
	t.Log("\n" + text(report))
}
