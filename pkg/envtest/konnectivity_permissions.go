// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/konnectivity"
)

// grantKonnectivity applies only the namespaces, ServiceAccounts and RBAC of konnectivity/ for
// the servers and the agents, with Leases.
func (e *Environment) grantKonnectivity(ctx context.Context) error {
	client, err := e.AdminClient()
	if err != nil {
		return err
	}
	namespaces := client.CoreV1().Namespaces()
	// kube-apiserver also creates it, a moment later.
	if err := createOrUpdate(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agentNamespace}},
		namespaces.Create, namespaces.Update); err != nil {
		return fmt.Errorf("apply namespace %s: %w", agentNamespace, err)
	}
	return e.applyPermissions(ctx, "konnectivity", konnectivity.FS, map[string]string{
		"env/kustomization.yaml": "resources: [../server/rbac, ../agents/base]\n",
	})
}

// AgentToken writes a token of the agents' ServiceAccount for an audience to a file and returns
// its path. The file has no trailing newline, because the agent sends its unmodified content.
func (e *Environment) AgentToken(ctx context.Context, audience string) (string, error) {
	client, err := e.AdminClient()
	if err != nil {
		return "", err
	}
	seconds := int64(tokenLifetime.Seconds())
	request, err := client.CoreV1().ServiceAccounts(agentNamespace).CreateToken(ctx, agentAccount,
		&authenticationv1.TokenRequest{
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

// InitPKI creates the missing certificates, like certgen init.
func (e *Environment) InitPKI(ctx context.Context) error {
	_, err := certs.Init(ctx, e.pki.options)
	return err
}
