// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/manifests"
)

// grant applies the namespace and the RBAC of the manifests and of the API, with the names of the
// environment, and creates the servers' kubeconfig.
func (e *Environment) grant(ctx context.Context) (err error) {
	api, err := exec.CommandContext(ctx, e.server, "apiservices", "--kustomize").Output()
	if err != nil {
		return fmt.Errorf("print the manifest of the API with %s: %w", e.server, err)
	}
	if err := e.applyPermissions(ctx, "manifests", manifests.FS, map[string]string{
		"env-names/kustomization.yaml": fmt.Sprintf(
			"apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnamespace: %s\nnamePrefix: %q\n",
			Namespace, strings.TrimSuffix(ServiceName, "apiserver")),
		"env/api.yaml":           string(api),
		"env/kustomization.yaml": "resources: [../base, api.yaml]\ncomponents: [../env-names, ../names]\n",
	}); err != nil {
		return err
	}
	if len(e.options.ServerPermissions) > 0 {
		account := "system:serviceaccount:" + Namespace + ":" + serviceAccount
		if err := e.Grant(ctx, account, e.options.ServerPermissions...); err != nil {
			return err
		}
	}
	e.serverKubeconfig, err = e.AccountKubeconfig(ctx, Namespace, serviceAccount)
	return err
}

// applyPermissions unpacks a folder of the kit below Dir, replacing an earlier copy, and adds files
// by their paths. It applies the namespaces, ServiceAccounts and RBAC that its folder env renders
// to.
func (e *Environment) applyPermissions(ctx context.Context, name string, folder fs.FS, files map[string]string) error {
	dir := filepath.Join(e.Dir, name)
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, folder)); err != nil {
		return fmt.Errorf("unpack %s/: %w", name, err)
	}
	for file, text := range files {
		path := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			return fmt.Errorf("write into %s/: %w", name, err)
		}
	}
	rendered, stderr, err := Kubectl{}.Run(ctx, e, "kustomize", filepath.Join(dir, "env"))
	if err != nil {
		return fmt.Errorf("render %s/: %w: %s", name, err, stderr)
	}
	var grants []string
	for object := range strings.SplitSeq(rendered, "\n---\n") {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(object), &meta); err != nil {
			return fmt.Errorf("read the rendered %s/: %w", name, err)
		}
		if meta.Kind == "Namespace" || meta.Kind == "ServiceAccount" ||
			meta.GroupVersionKind().Group == rbacv1.GroupName {
			grants = append(grants, object)
		}
	}
	if _, stderr, err := (Kubectl{Stdin: strings.Join(grants, "\n---\n")}).Run(ctx, e, "apply", "--server-side",
		"--force-conflicts", "-f", "-"); err != nil {
		return fmt.Errorf("apply the permissions of %s/: %w: %s", name, err, stderr)
	}
	return nil
}
