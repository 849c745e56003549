// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"example.com/extension-apiserver/internal/certs"
	kubecluster "example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/rotation"
	"example.com/extension-apiserver/internal/scripttest"
)

// Names in the manifests of the sample.
const (
	serverName      = "extension-apiserver"
	serverNamespace = "workshop-system"
	certgenAccount  = serverName + "-certgen"
	servingSecret   = serverName + "-serving"
	caSecret        = serverName + "-serving-ca"
)

// testCertgen runs certgen like its Job and its CronJob, with their arguments and the permissions
// of their ServiceAccount: three at once, as Job, CronJob and a second Job may run, and then
// again.
func testCertgen(c *cluster) {
	text := render(c, variant{components: []string{"certificates-certgen"}})
	objects := parse(c, text)
	c.apply(c.pick(text, "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Secret"))
	var args []string
	for _, w := range workloads(c, objects) {
		if w.GetKind() == "Job" {
			args = expand(c, w.GetNamespace(), w.pod.Spec.Containers[0], objects)
		}
	}
	kubeconfig := c.accountKubeconfig(certgenAccount)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if out, err := c.certgen(kubeconfig, args); err != nil {
				c.Errorf("certgen %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		})
	}
	// The Secret comes before the API, because the server needs it; the caBundle comes after.
	c.eventually("the serving Secret", func(ctx context.Context) error {
		_, err := c.client.CoreV1().Secrets(serverNamespace).Get(ctx, servingSecret, metav1.GetOptions{})
		return err
	})
	c.apply(c.pick(text, "APIService"))
	all.Wait()
	c.checkCertificates()
	before := c.secrets()
	out, err := c.certgen(kubeconfig, args)
	if err != nil || regexp.MustCompile(`(?m)^(created|replaced) `).MatchString(out) || before != c.secrets() {
		c.Errorf("again: %v\n%s\nwant nothing written", err, out)
	}
	c.testReplacedSecrets(text, kubeconfig, args)
	c.rotateCA(kubeconfig)
	c.comparePermissions(serverNamespace, certgenAccount, objects, map[string]string{
		"list endpointslices.discovery.k8s.io": "the Service has the name of a host here; the " +
			"suite uninstall uses it on kind",
		"get endpointslices.discovery.k8s.io /kubernetes": "a kube-apiserver on 127.0.0.1 does not enter " +
			"itself; the suite uninstall uses it on kind",
		"create secrets " + serverNamespace + "/" +
			servingSecret: "kube-apiserver requires it for a patch; testReplacedSecrets removes it",
	})
	c.attackAPIServices(text, kubeconfig)
	if _, stderr, err := c.kubectl(c.pick(text, "APIService"), "delete", "-f", "-"); err != nil {
		c.Fatalf("%v %s", err, stderr)
	}
}

// testReplacedSecrets checks that a lost serving key pair is issued again, which needs the
// permission to create. A lost CA is an error, because the API trusts it, and nothing is changed.
func (c *cluster) testReplacedSecrets(text, kubeconfig string, args []string) {
	c.Helper()
	secrets := c.client.CoreV1().Secrets(serverNamespace)
	if err := secrets.Delete(c.Context(), servingSecret, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	// As another account: a missing permission is an error in the end.
	few := strings.NewReplacer("name: "+certgenAccount, "name: few-permissions", "  - create\n  - patch\n",
		"  - patch\n").Replace(
		c.pick(text, "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"))
	c.apply(few)
	fewKubeconfig := c.accountKubeconfig("few-permissions")
	c.eventually("certgen to be refused what it lacks", func(context.Context) error {
		if out, err := c.certgen(fewKubeconfig, args); err == nil ||
			!strings.Contains(out, `cannot create resource "secrets"`) {
			return fmt.Errorf("without the permission to create: %w\n%s", err, out)
		}
		return nil
	})
	c.eventually("certgen to succeed", func(context.Context) error {
		out, err := c.certgen(kubeconfig, args)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	c.checkCertificates()
	ca, err := secrets.Get(c.Context(), caSecret, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	empty := ca.DeepCopy()
	empty.Data = nil
	if _, err := secrets.Update(c.Context(), empty, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	// If the key pair still exists, its CA is missing; without it there would be a new CA that no
	// client trusts.
	for _, want := range []string{"expected the CA of ",
		"kube-apiserver would refuse servers with a certificate of this CA"} {
		before := c.secrets()
		if out, err := c.certgen(kubeconfig, args); err == nil || !strings.Contains(out, want) ||
			c.secrets() != before {
			c.Errorf("with a lost CA: %v\n%s\nwant it refused with %q and the Secrets as they were", err, out, want)
		}
		if err := secrets.Delete(c.Context(), servingSecret, metav1.DeleteOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			c.Fatal(err)
		}
	}
	ca.ResourceVersion = ""
	if _, err := secrets.Update(c.Context(), ca, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	if out, err := c.certgen(kubeconfig, args); err != nil {
		c.Errorf("with the CA restored: %v\n%s", err, out)
	}
	c.forgetDamagedCA(kubeconfig, args)
	// The manifest, applied again, leaves the CA alone.
	c.apply(c.pick(render(c, variant{components: []string{"certificates-certgen"}}), "Secret"))
	c.checkCertificates()
}

// forgetDamagedCA tests a damaged CA without a backup: the commands in certgen's error make room
// for a new CA.
func (c *cluster) forgetDamagedCA(kubeconfig string, args []string) {
	c.Helper()
	damage := `{"data":{"tls.crt":"ZGFtYWdlZA=="}}`
	if _, stderr, err := c.kubectl("", "patch", "secret", caSecret, "--namespace", serverNamespace, "--type=merge",
		"--patch", damage); err != nil {
		c.Fatalf("%v %s", err, stderr)
	}
	before := c.secrets()
	out, err := c.certgen(kubeconfig, args)
	_, commands, found := strings.Cut(out, "until the new CA is in use): ")
	if err == nil || !found || c.secrets() != before {
		c.Fatalf("with a damaged CA: %v\n%s\nwant it refused with commands, and the Secrets as they were", err, out)
	}
	admin, err := c.env.AdminKubeconfig()
	if err != nil {
		c.Fatal(err)
	}
	commands, _, _ = strings.Cut(commands, "\n")
	scripttest.Shell(c.T, ".", commands, "KUBECONFIG="+admin,
		"PATH="+filepath.Dir(c.env.Binary("kubectl"))+":"+os.Getenv("PATH"))
	if out, err := c.certgen(kubeconfig, args); err != nil {
		c.Errorf("with the old CA removed: %v\n%s", err, out)
	}
	c.checkCertificates()
}

// checkCertificates checks that there is one CA, which signed the key pair, and which every
// APIService trusts.
func (c *cluster) checkCertificates() {
	c.Helper()
	ca, err := c.client.CoreV1().Secrets(serverNamespace).Get(c.Context(), caSecret, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	if _, err := certs.ParseCA(ca.Data[certs.CertFile], ca.Data[certs.KeyFile], nil); err != nil {
		c.Fatalf("CA in Secret: %v", err)
	}
	serving, err := c.client.CoreV1().Secrets(serverNamespace).Get(c.Context(), servingSecret, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	if serving.Type != corev1.SecretTypeTLS || string(serving.Data[certs.BundleFile]) != string(
		ca.Data[certs.CertFile]) {
		c.Errorf("serving Secret: type %s, ca.crt\n%s\nwant %s", serving.Type, serving.Data[certs.BundleFile],
			ca.Data[certs.CertFile])
	}
	config, err := c.env.AdminConfig()
	if err != nil {
		c.Fatal(err)
	}
	cluster, err := kubecluster.New(config)
	if err != nil {
		c.Fatal(err)
	}
	all, err := cluster.APIServices(c.Context(), certs.Service{Name: serverName, Namespace: serverNamespace})
	if err != nil || len(all) != 3 {
		c.Fatalf("%d APIServices, %v; want 3", len(all), err)
	}
	for _, a := range all {
		if string(a.Spec.CABundle) != string(ca.Data[certs.CertFile]) {
			c.Errorf("caBundle of %s:\n%s\nwant %s", a.Name, a.Spec.CABundle, ca.Data[certs.CertFile])
		}
	}
}

// certgen runs certgen as a ServiceAccount.
func (c *cluster) certgen(kubeconfig string, args []string) (string, error) {
	c.Helper()
	args = append(slices.Clone(args), "--kubeconfig="+kubeconfig)
	out, err := exec.CommandContext(c.Context(), build(c, "cmd/certgen"), args...).CombinedOutput()
	return string(out), err
}

func (c *cluster) accountKubeconfig(account string) string {
	c.Helper()
	kubeconfig, err := c.env.AccountKubeconfig(c.Context(), serverNamespace, account)
	if err != nil {
		c.Fatal(err)
	}
	return kubeconfig
}

// secrets returns the names and resourceVersions of both Secrets.
func (c *cluster) secrets() string {
	c.Helper()
	out := ""
	for _, name := range []string{servingSecret, caSecret} {
		s, err := c.client.CoreV1().Secrets(serverNamespace).Get(c.Context(), name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			c.Fatal(err)
		}
		out += name + "@" + s.ResourceVersion + " "
	}
	return out
}

// attackAPIServices checks that certgen's token can change the caBundle of the API's APIServices,
// and nothing else of them.
func (c *cluster) attackAPIServices(text, kubeconfig string) {
	c.Helper()
	c.apply(c.pick(text, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"))
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		c.Fatal(err)
	}
	client, err := aggregatorclient.NewForConfig(config)
	if err != nil {
		c.Fatal(err)
	}
	patch := func(patch string) error {
		_, err := client.ApiregistrationV1().APIServices().Patch(c.Context(), "v1.workshop.example.com",
			types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	refused := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "certgen-ca-bundle")
	}
	// A policy applies a moment after it is stored. A request that changes nothing is not an
	// attack.
	priority := 20
	c.eventually("the policy to hold", func(context.Context) error {
		priority++
		if err := patch(fmt.Sprintf(`{"spec":{"versionPriority":%d}}`, priority)); !refused(err) {
			return fmt.Errorf("got %w, want it forbidden", err)
		}
		return nil
	})
	for name, attack := range map[string]string{
		"another Service":     `{"spec":{"service":{"name":"evil"}}}`,
		"another namespace":   `{"spec":{"service":{"namespace":"evil"}}}`,
		"another port":        `{"spec":{"service":{"port":1}}}`,
		"not verified":        `{"spec":{"caBundle":null,"insecureSkipTLSVerify":true}}`,
		"the system's CAs":    `{"spec":{"caBundle":null}}`,
		"served locally":      `{"spec":{"caBundle":null,"service":null}}`,
		"another priority":    `{"spec":{"versionPriority":77}}`,
		"another group's":     `{"spec":{"groupPriorityMinimum":77}}`,
		"an injector":         `{"metadata":{"annotations":{"cert-manager.io/inject-ca-from":"evil/evil"}}}`,
		"a label":             `{"metadata":{"labels":{"kube-aggregator.kubernetes.io/automanaged":"true"}}}`,
		"a finalizer":         `{"metadata":{"finalizers":["evil.example.com/x"]}}`,
		"an owner":            `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"evil","uid":"1"}]}}`,
		"caBundle and others": `{"spec":{"caBundle":"QQ==","versionPriority":77}}`,
	} {
		if err := patch(attack); !refused(err) {
			c.Errorf("%s: got %v, want it forbidden by the policy", name, err)
		}
	}
	secret, err := c.client.CoreV1().Secrets(serverNamespace).Get(c.Context(), caSecret, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	if err := patch(fmt.Sprintf(`{"spec":{"caBundle":%q}}`,
		base64.StdEncoding.EncodeToString(secret.Data[certs.CertFile]))); err != nil {
		c.Errorf("the caBundle alone: %v, want it allowed", err)
	}
	// An administrator is allowed all of that.
	_, stderr, err := c.kubectl("", "annotate", "apiservice", "v1.workshop.example.com", "example.com/note=x")
	if err != nil {
		c.Errorf("an administrator: %v %s", err, stderr)
	}
}

// rotateCA replaces the CA with the permissions of the ServiceAccount. The backend of the Service
// only serves the key pair in the Secret: test/certgen/rotation and the suites on kind use real
// ones.
func (c *cluster) rotateCA(kubeconfig string) {
	c.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		list := metav1.APIResourceList{GroupVersion: strings.TrimPrefix(r.URL.Path, "/apis/")}
		list.Kind, list.APIVersion = "APIResourceList", "v1"
		if err := json.NewEncoder(w).Encode(list); err != nil {
			c.Error(err)
		}
	}))
	server.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		secret, err := c.client.CoreV1().Secrets(serverNamespace).Get(c.Context(), servingSecret, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(secret.Data[certs.CertFile], secret.Data[certs.KeyFile])
		return &pair, err
	}}
	server.StartTLS()
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	c.apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q,"namespace":%q},"spec":{"type":"ExternalName","externalName":"localhost"}}`,
		serverName, serverNamespace))
	config, err := c.env.AdminConfig()
	if err != nil {
		c.Fatal(err)
	}
	cluster, err := kubecluster.New(config)
	if err != nil {
		c.Fatal(err)
	}
	all, err := cluster.APIServices(c.Context(), certs.Service{Name: serverName, Namespace: serverNamespace})
	if err != nil {
		c.Fatal(err)
	}
	for _, a := range all {
		patch := fmt.Sprintf(`{"spec":{"service":{"port":%d}}}`, port)
		if _, err := cluster.Aggregator.ApiregistrationV1().APIServices().Patch(c.Context(), a.Name,
			types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			c.Fatal(err)
		}
	}
	args := []string{"rotate", rotation.ServingCA, "--secret=" + servingSecret, "--ca-secret=" + caSecret,
		"--service=" + serverName,
		"--namespace=" + serverNamespace, "--hold=1s", "--kube-apiserver=" + config.Host}
	before := c.secrets()
	c.eventually("the API to respond, and certgen to replace its CA", func(context.Context) error {
		out, err := c.certgen(kubeconfig, args)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	if c.secrets() == before {
		c.Error("the Secrets are as they were")
	}
	c.checkCertificates()
}
