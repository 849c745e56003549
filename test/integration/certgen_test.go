// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/manifest"
	"example.com/extension-apiserver/test/fixture/install"
)

// TestCertgenCABundle: what certgen emit apiservice-ca-bundle writes changes the caBundle of an APIService that is there,
// and nothing else; one that is not there is refused. All are dry runs, so the environment stays as it is.
func TestCertgenCABundle(t *testing.T) {
	services := apiServices(t, shared)
	ca, err := certs.NewCA(certs.CAOptions{Name: "next-ca", Usage: x509.ExtKeyUsageServerAuth})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca.CertPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	gv := install.GroupVersions[0]
	there, gone := gv.Version+"."+gv.Group, "v9."+gv.Group
	data, err := manifest.CABundles(manifest.CABundleOptions{APIServices: []string{there, gone}, From: file, Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(data), "---\n")
	options := metav1.PatchOptions{FieldManager: "certgen", DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}

	before, err := services.Get(t.Context(), there, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := services.Patch(t.Context(), there, types.ApplyPatchType, []byte(documents[0]), options); !apierrors.IsConflict(err) {
		t.Errorf("apply over another manager's caBundle: got %v, want a conflict", err)
	}
	force := true
	options.Force = &force
	got, err := services.Patch(t.Context(), there, types.ApplyPatchType, []byte(documents[0]), options)
	if err != nil {
		t.Fatal(err)
	}
	want := before.DeepCopy()
	want.Spec.CABundle = ca.CertPEM
	if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if _, err := services.Patch(t.Context(), gone, types.ApplyPatchType, []byte(documents[1]), options); !apierrors.IsInvalid(err) {
		t.Errorf("apply to an APIService that is not there: got %v, want it refused as invalid", err)
	}
}
