// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/certs"
)

// grantKonnectivity applies what konnectivity/ grants the servers and the agents, with Leases, and no more of it.
func (e *Environment) grantKonnectivity(ctx context.Context) error {
	client, err := e.AdminClient()
	if err != nil {
		return err
	}
	namespaces := client.CoreV1().Namespaces()
	// kube-apiserver makes it too, a moment later.
	if err := createOrUpdate(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agentNamespace}}, namespaces.Create, namespaces.Update); err != nil {
		return fmt.Errorf("apply namespace %s: %w", agentNamespace, err)
	}
	rendered, err := e.renderKonnectivity(ctx)
	if err != nil {
		return err
	}
	var grants []string
	for object := range strings.SplitSeq(rendered, "\n---\n") {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(object), &meta); err != nil {
			return fmt.Errorf("read what konnectivity/ renders to: %w", err)
		}
		if meta.Kind == "Namespace" || meta.Kind == "ServiceAccount" || meta.GroupVersionKind().Group == rbacv1.GroupName {
			grants = append(grants, object)
		}
	}
	if _, stderr, err := (Kubectl{Stdin: strings.Join(grants, "\n---\n")}).Run(ctx, e, "apply", "--server-side", "-f", "-"); err != nil {
		return fmt.Errorf("apply the rights of konnectivity: %w: %s", err, stderr)
	}
	return nil
}

// renderKonnectivity renders the objects of the servers and of the agents that count them by Leases.
func (e *Environment) renderKonnectivity(ctx context.Context) (string, error) {
	overlay := filepath.Join(e.Dir, "konnectivity")
	here, err := filepath.Rel(overlay, filepath.Join(e.root, "konnectivity"))
	if err != nil {
		return "", err
	}
	kustomization := fmt.Sprintf("resources: [%[1]s/server/rbac, %[1]s/agents/base]\n"+
		"components: [%[1]s/server/rbac/components/leases, %[1]s/agents/components/leases]\n", here)
	if err := errors.Join(os.MkdirAll(overlay, 0o700), os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(kustomization), 0o600)); err != nil {
		return "", fmt.Errorf("write an overlay on konnectivity/: %w", err)
	}
	rendered, stderr, err := Kubectl{}.Run(ctx, e, "kustomize", overlay)
	if err != nil {
		return "", fmt.Errorf("render konnectivity/: %w: %s", err, stderr)
	}
	return rendered, nil
}

// AgentToken writes a token of the agents' ServiceAccount for an audience into a file, and returns its path. The file ends
// without a newline: the agent sends what it reads.
func (e *Environment) AgentToken(ctx context.Context, audience string) (string, error) {
	client, err := e.AdminClient()
	if err != nil {
		return "", err
	}
	seconds := int64(tokenLifetime.Seconds())
	request, err := client.CoreV1().ServiceAccounts(agentNamespace).CreateToken(ctx, agentAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request token of agents: %w", err)
	}
	path := filepath.Join(e.Dir, "users", fileName("agent-"+audience)+".token")
	if err := os.WriteFile(path, []byte(request.Status.Token), 0o600); err != nil {
		return "", fmt.Errorf("write token of agents: %w", err)
	}
	return path, nil
}

// InitPKI makes the certificates that are missing, as certgen init does.
func (e *Environment) InitPKI(ctx context.Context) error {
	_, err := certs.Init(ctx, e.pki.options)
	return err
}
