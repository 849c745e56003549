// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	namespace = "workshop-system"
	name      = "extension-apiserver"
	// releases is the namespace of the Helm release.
	releases = "releases"
	// certgen is the field manager of certgen.
	certgen = "certgen"
)

// patience is how long a condition may take on a busy machine.
const patience = 2 * time.Minute

// cluster is a control plane, and the pods that no kubelet runs there.
type cluster struct {
	*testing.T
	kubeconfig string
	config     *rest.Config
	client     client.Client
	ca         []byte // PEM
	// issued is true when certgen has issued the certificate, without which the server's pods do
	// not start.
	issued bool
	// completed contains the Jobs whose pod has succeeded.
	completed map[types.UID]bool
}

// newCluster returns a control plane without the given objects.
func newCluster(t *testing.T, objects []*unstructured.Unstructured) *cluster {
	t.Helper()
	c := &cluster{T: t, kubeconfig: os.Getenv("GITOPS_KUBECONFIG"), ca: newCA(t), completed: map[types.UID]bool{}}
	if c.kubeconfig == "" {
		env := &envtest.Environment{ControlPlaneStartTimeout: time.Minute, ControlPlaneStopTimeout: time.Minute}
		if _, err := env.Start(); err != nil {
			t.Fatalf("start the programs in KUBEBUILDER_ASSETS: %v", err)
		}
		t.Cleanup(func() {
			if err := env.Stop(); err != nil {
				t.Error(err)
			}
		})
		c.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(c.kubeconfig, env.KubeConfig, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig); err != nil {
		t.Fatal(err)
	}
	c.config.QPS, c.config.Burst = 100, 200
	if c.client, err = client.New(c.config, client.Options{}); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("GITOPS_KUBECONFIG") != "" {
		c.remove(objects)
		t.Cleanup(func() { c.remove(objects) })
	}
	return c
}

// newCA returns the certificate of a CA.
func newCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gitops-test"}, NotBefore: time.Now(),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// caBundle returns the value of the field in JSON.
func (c *cluster) caBundle() string { return base64.StdEncoding.EncodeToString(c.ca) }

// act does what the pods of certgen's Jobs would do.
func (c *cluster) act() {
	c.Helper()
	for _, job := range c.jobs() {
		if job.DeletionTimestamp == nil && !c.completed[job.UID] {
			c.completed[job.UID] = c.renew(job.Spec.Template.Spec.Containers[0].Args)
		}
	}
}

// renew does what certgen renew does: it stores the CA, sets it as the caBundle of the APIServices
// that exist, and completes when those exist for which it waits.
func (c *cluster) renew(args []string) (completed bool) {
	c.Helper()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: name + "-serving-ca"}
	if err := c.client.Get(c.Context(), key, secret); err != nil {
		c.Fatal(err)
	}
	if len(secret.Data) == 0 {
		secret.Data = map[string][]byte{"tls.crt": c.ca}
		if err := c.client.Update(c.Context(), secret, client.FieldOwner(certgen)); err != nil {
			c.Fatal(err)
		}
	}
	c.issued = true
	var found []string
	for _, a := range c.apiServices() {
		found = append(found, a.GetName())
		if bundleOf(a) != "" {
			continue
		}
		// Without force: another owner is a conflict.
		apply := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": a.GetAPIVersion(), "kind": a.GetKind(), "metadata": map[string]any{"name": a.GetName()},
			"spec": map[string]any{"caBundle": c.caBundle()},
		}}
		if err := c.client.Apply(c.Context(), client.ApplyConfigurationFromUnstructured(apply),
			client.FieldOwner(certgen)); err != nil {
			c.Fatalf("certgen: %v", err)
		}
	}
	return !slices.ContainsFunc(waitsFor(args), func(awaited string) bool { return !slices.Contains(found, awaited) })
}

// apiServices returns the APIServices of the server.
func (c *cluster) apiServices() []unstructured.Unstructured {
	c.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("apiregistration.k8s.io/v1")
	list.SetKind("APIServiceList")
	if err := c.client.List(c.Context(), list); err != nil {
		c.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(a unstructured.Unstructured) bool {
		service, _, _ := unstructured.NestedString(a.Object, "spec", "service", "name") // local ones have none
		return service != name
	})
}

// bundleOf returns the caBundle of an APIService.
func bundleOf(a unstructured.Unstructured) string {
	bundle, _, _ := unstructured.NestedString(a.Object, "spec", "caBundle")
	return bundle
}

func (c *cluster) jobs() []batchv1.Job {
	c.Helper()
	list := &batchv1.JobList{}
	if err := c.client.List(c.Context(), list, client.InNamespace(namespace)); err != nil {
		c.Fatal(err)
	}
	return list.Items
}

// get returns the object in the cluster, or nil if it does not exist.
func (c *cluster) get(obj *unstructured.Unstructured) *unstructured.Unstructured {
	c.Helper()
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(obj.GroupVersionKind())
	err := c.client.Get(c.Context(), client.ObjectKeyFromObject(obj), live)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.Fatal(err)
	}
	return live
}

// checkUnregistered fails if the API is registered.
func (c *cluster) checkUnregistered() {
	c.Helper()
	if found := c.apiServices(); len(found) > 0 {
		c.Errorf("%d APIServices are registered before the server is ready", len(found))
	}
}

// checkOwners fails unless certgen alone owns the caBundle of each APIService, and the data of the
// CA's Secret is unchanged.
func (c *cluster) checkOwners() {
	c.Helper()
	found := c.apiServices()
	if len(found) != 3 {
		c.Errorf("got %d APIServices, want 3", len(found))
	}
	for _, a := range found {
		var owners []string
		for _, f := range a.GetManagedFields() {
			if f.FieldsV1 != nil && strings.Contains(f.FieldsV1.GetRawString(), "caBundle") {
				owners = append(owners, f.Manager)
			}
		}
		if bundleOf(a) != c.caBundle() || !slices.Equal(owners, []string{certgen}) {
			c.Errorf("APIService %s: got a caBundle of %d characters, owned by %q; want the CA, owned by certgen",
				a.GetName(), len(bundleOf(a)), owners)
		}
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: name + "-serving-ca"}
	if err := c.client.Get(c.Context(), key, secret); err != nil || string(secret.Data["tls.crt"]) != string(c.ca) {
		c.Errorf("Secret %s: got %d keys, %v; want the CA", key, len(secret.Data), err)
	}
}

// checkJobs fails unless both Jobs have an image with the tag, and have completed.
func (c *cluster) checkJobs(tag string) {
	c.Helper()
	jobs := c.jobs()
	if len(jobs) != 2 {
		c.Errorf("got %d Jobs, want 2", len(jobs))
	}
	for _, job := range jobs {
		if image := job.Spec.Template.Spec.Containers[0].Image; image != "certgen:"+tag || !c.completed[job.UID] {
			c.Errorf("Job %s: got the image %s, completed %t; want certgen:%s, completed", job.Name, image,
				c.completed[job.UID], tag)
		}
	}
}

// remove deletes the objects. The APIServices are first: while one is not available, no namespace
// can be deleted.
func (c *cluster) remove(objects []*unstructured.Unstructured) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience) // also after the test
	defer cancel()
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return order(a) - order(b)
	})
	release := &unstructured.Unstructured{}
	release.SetAPIVersion("v1")
	release.SetKind("Namespace")
	release.SetName(releases)
	jobs := &batchv1.JobList{}
	if err := c.client.List(ctx, jobs, client.InNamespace(namespace)); err != nil {
		c.Fatal(err)
	}
	for i := range jobs.Items {
		// A sync that failed leaves the finalizer of Argo CD.
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := c.client.Patch(ctx, &jobs.Items[i], patch); client.IgnoreNotFound(err) != nil {
			c.Error(err)
		}
	}
	for _, obj := range append(objects, release) {
		if err := client.IgnoreNotFound(c.client.Delete(ctx, obj.DeepCopy(),
			client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
			c.Errorf("delete %s %s: %v", obj.GetKind(), obj.GetName(), err)
		}
	}
	for _, ns := range []string{namespace, releases} {
		if err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
			err := c.client.Get(ctx, client.ObjectKey{Name: ns}, &corev1.Namespace{})
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		}); err != nil {
			c.Fatalf("delete namespace %s: %v", ns, err)
		}
	}
}

// order returns the position of an object in a deletion.
func order(obj *unstructured.Unstructured) int {
	switch obj.GetKind() {
	case "APIService":
		return 0
	case "Namespace":
		return 2
	default:
		return 1
	}
}

// describe returns the kind and the name of an object.
func describe(obj *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s", obj.GetKind(), obj.GetName())
}
