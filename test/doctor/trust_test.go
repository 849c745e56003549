// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// TestTrust restarts a kube-apiserver with other flags of the aggregation layer.
func TestTrust(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped in short mode: kube-apiserver is restarted several times")
	}
	e := envtest.New(t, envtest.Options{})
	ca := func(name string) string {
		data, err := os.ReadFile(filepath.Join(e.PKI(), name, certs.CertFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	both := filepath.Join(t.TempDir(), "both.crt")
	scripttest.Write(t, both, ca("client-ca")+ca(certs.FrontProxyCADir))
	restart(t, e, `"$@" --client-ca-file=`+both)
	wantCause(t, e, "P03")

	restart(t, e, `$(printf '%s\n' "$@" | grep -v -e --requestheader -e --proxy-client)`)
	// kube-apiserver does not remove what an earlier one has published.
	var keys []string
	for _, key := range []string{frontproxy.CAKey, frontproxy.AllowedNamesKey, frontproxy.UsernameHeadersKey,
		frontproxy.UIDHeadersKey, frontproxy.GroupHeadersKey, frontproxy.ExtraHeaderPrefixesKey} {
		keys = append(keys, fmt.Sprintf("%q: null", key))
	}
	if _, err := e.Client(t).CoreV1().ConfigMaps(frontproxy.Namespace).Patch(t.Context(), frontproxy.ConfigMapName,
		types.MergePatchType, []byte(`{"data": {`+strings.Join(keys, ", ")+`}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	wantCause(t, e, "P04")
}

// restart restarts the kube-apiserver with the arguments that a shell makes of its own.
func restart(t *testing.T, e *envtest.Environment, arguments string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kube-apiserver")
	script := fmt.Sprintf("#!/bin/sh\nexec %s %s\n", e.Binary("kube-apiserver"), arguments)
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if err := e.UpgradeKubeAPIServer(t.Context(), e.KubeAPIServers[0], program); err != nil {
		t.Fatal(err)
	}
}

// wantCause waits until the only root cause explains that the APIServices are not available.
func wantCause(t *testing.T, e *envtest.Environment, id string) {
	t.Helper()
	e.Eventually(t, id, 2*envtest.WaitTimeout, func(context.Context) error {
		report, err := diagnose(t.Context(), e.Admin(t), 0)
		if err != nil {
			return err
		}
		if !slices.Equal(ids(report), []string{id}) || !slices.ContainsFunc(report.RootCauses[0].Explains,
			func(f doctor.Finding) bool { return f.ID == "A01" }) {
			return errors.New(text(report))
		}
		return nil
	})
}
