// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

var shared *envtest.Environment

func TestMain(m *testing.M) {
	// Install the packages first. Without them most tests fail for the same reason.
	var err error
	if packages, err = scripttest.NPM(context.Background(), packageList); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(envtest.Main(m, envtest.Options{}, &shared))
}

// python is the interpreter that finds the distribution's packages, even if another Python is
// first in the PATH.
const python = "/usr/bin/python3"

// scripts maps each language to its script and to the steps that the script prints. All scripts
// perform the same operations.
var scripts = map[string]struct {
	command []string
	steps   string
}{
	"python": {[]string{python, "client.py"}, "create read pages merge_patch apply replace errors watch delete"},
	"javascript": {[]string{"node", "client.mjs"},
		"create read pages merge_patch apply replace errors watch informer delete"},
}

// resource describes the resource that a script uses. The script reads it as JSON.
type resource struct {
	Run        string `json:"run"` // name prefix and label of the objects that the script creates
	Resource   string `json:"resource"`
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Namespace  string `json:"namespace"`
	// Spec is a valid spec. Change changes a field of it. FieldSelector matches the object RUN-b
	// only after that change.
	Spec          map[string]any `json:"spec"`
	Change        map[string]any `json:"change"`
	FieldSelector string         `json:"fieldSelector"`
	// Invalid is a spec that the server rejects because of InvalidField.
	Invalid      map[string]any `json:"invalid"`
	InvalidField string         `json:"invalidField"`
	// Forbidden is a kind that the user has no permissions for.
	Forbidden string `json:"forbidden"`
}

// cases lists a namespaced and a cluster-scoped kind, with users that authenticate in different
// ways.
var cases = []struct {
	resource
	user func(*testing.T, string) (name, kubeconfig string)
}{
	{resource{
		Resource: "widgets", Kind: "Widget", Spec: map[string]any{"model": "pendulum"},
		Change:        map[string]any{"grade": "Premium"},
		FieldSelector: "spec.grade=Premium", Invalid: map[string]any{"model": "m", "replicas": -1},
		InvalidField: "spec.replicas", Forbidden: "Gadget",
	}, withCertificate},
	{resource{
		Resource: "gadgets", Kind: "Gadget", Spec: map[string]any{"purpose": "first"},
		Change:        map[string]any{"purpose": "second"},
		FieldSelector: "metadata.name=RUN-b", Invalid: map[string]any{"purpose": "p", "precision": 7},
		InvalidField: "spec.precision", Forbidden: "Widget",
	}, withToken},
}

// TestClients checks that clients can use aggregated resources like built-in ones, as users with
// permissions for one resource.
func TestClients(t *testing.T) {
	dir := scriptDir(t)
	for language, script := range scripts {
		for _, tc := range cases {
			t.Run(language+" "+tc.Resource, func(t *testing.T) {
				namespace := shared.NewNamespace(t)
				user, kubeconfig := tc.user(t, namespace)
				grant(t, user, tc.Resource)
				r := tc.resource
				r.APIVersion, r.Run = install.GroupVersions()[0].String(), language+"-"+namespace
				r.FieldSelector = strings.ReplaceAll(r.FieldSelector, "RUN", r.Run)
				if r.Resource == "widgets" {
					r.Namespace = namespace
				}
				out, err := run(t, dir, script.command, kubeconfig, r)
				if err != nil {
					t.Fatalf("%v:\n%s", err, out)
				}
				if diff := cmp.Diff(strings.Fields(script.steps), strings.Fields(out)); diff != "" {
					t.Errorf("steps (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestUntrusted checks that each client rejects a server whose certificate is not signed by the
// CA in its kubeconfig.
func TestUntrusted(t *testing.T) {
	dir := scriptDir(t)
	_, kubeconfig := withCertificate(t, "untrusting")
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters["env"].CertificateAuthority = filepath.Join(shared.PKI(), "client-ca", "tls.crt")
	for language, script := range scripts {
		t.Run(language, func(t *testing.T) {
			out, err := run(t, dir, script.command, write(t, config),
				resource{APIVersion: install.GroupVersions()[0].String(), Kind: "Widget"})
			if err == nil || !strings.Contains(out, "certificate") {
				t.Errorf("got %v:\n%s\nwant an error about the certificate", err, out)
			}
		})
	}
}

// run runs a script with a kubeconfig and the description of the resource.
func run(t *testing.T, dir string, command []string, kubeconfig string, r resource) (string, error) {
	t.Helper()
	told, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return inDir(t, dir, kubeconfig, slices.Concat(command, []string{kubeconfig, string(told)})...)
}

// inDir runs a command in dir, with a time limit of three times envtest.WaitTimeout.
func inDir(t *testing.T, dir, kubeconfig string, command ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*envtest.WaitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	// Python's client caches discovery by address in the directory for temporary files. An
	// earlier environment may have had the same address.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "TMPDIR="+t.TempDir(),
		"PATH="+filepath.Dir(shared.Binary("kubectl"))+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// withCertificate creates a user with a client certificate.
func withCertificate(t *testing.T, name string) (user, kubeconfig string) {
	t.Helper()
	kubeconfig, err := shared.Kubeconfig(name)
	if err != nil {
		t.Fatal(err)
	}
	return name, kubeconfig
}

// withToken creates a ServiceAccount in the namespace, with a token as pods have.
func withToken(t *testing.T, namespace string) (user, kubeconfig string) {
	t.Helper()
	accounts := shared.Client(t).CoreV1().ServiceAccounts(namespace)
	account, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "client"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, other := withCertificate(t, "other")
	config, err := clientcmd.LoadFromFile(other)
	if err != nil {
		t.Fatal(err)
	}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	return "system:serviceaccount:" + namespace + ":client", write(t, config)
}

func write(t *testing.T, config *clientcmdapi.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func grant(t *testing.T, user, resource string) {
	t.Helper()
	if err := shared.Grant(t.Context(), user, rbacv1.PolicyRule{
		APIGroups: []string{install.GroupVersions()[0].Group}, Resources: []string{resource}, Verbs: []string{"*"},
	}); err != nil {
		t.Fatal(err)
	}
}
