// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Admin is a user in the group system:masters, which has all permissions.
const (
	Admin      = "admin"
	adminGroup = "system:masters"
)

// Kubeconfig creates a user with a client certificate and returns the path of its kubeconfig. The
// user has only the permissions of every authenticated user and of its groups.
func (e *Environment) Kubeconfig(user string, groups ...string) (string, error) {
	return e.kubeconfig(e.KubeAPIServers[0], user, groups)
}

func (e *Environment) kubeconfig(k *KubeAPIServer, user string, groups []string) (string, error) {
	name := fileName(k.host.name + "-" + strings.Join(append([]string{user}, groups...), "-"))
	path := filepath.Join(e.Dir, "users", name+".kubeconfig")
	e.users.Lock()
	defer e.users.Unlock()
	// Create it only once, because parallel tests read the files of the same user.
	if e.users.made.Has(path) {
		return path, nil
	}
	if err := e.pki.client(e.pki.clients, "user-"+name, user, groups...); err != nil {
		return "", err
	}
	if err := e.writeKubeconfig(path, k, "", &clientcmdapi.AuthInfo{
		ClientCertificate: e.pki.cert("user-" + name), ClientKey: e.pki.key("user-" + name),
	}); err != nil {
		return "", err
	}
	e.users.made.Insert(path)
	return path, nil
}

func (e *Environment) writeKubeconfig(path string, k *KubeAPIServer, namespace string,
	auth *clientcmdapi.AuthInfo) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["env"] = &clientcmdapi.Cluster{Server: k.URL, CertificateAuthority: e.pki.cert("control-plane-ca")}
	config.AuthInfos["user"] = auth
	config.Contexts["env"] = &clientcmdapi.Context{Cluster: "env", AuthInfo: "user", Namespace: namespace}
	config.CurrentContext = "env"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// Config creates a user like Kubeconfig and returns a client configuration that works from any
// host.
func (e *Environment) Config(user string, groups ...string) (*rest.Config, error) {
	return e.ConfigAt(e.KubeAPIServers[0], user, groups...)
}

// ConfigAt is Config with a given kube-apiserver.
func (e *Environment) ConfigAt(k *KubeAPIServer, user string, groups ...string) (*rest.Config, error) {
	path, err := e.kubeconfig(k, user, groups)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	config.Dial, config.Proxy = k.host.dial, noProxy
	// The default of 5 requests per second would throttle tests.
	config.QPS, config.Burst = 1000, 1000
	return config, nil
}

func (e *Environment) adminOf(k *KubeAPIServer) (*rest.Config, error) {
	return e.ConfigAt(k, Admin, adminGroup)
}

// AdminConfigs returns client configurations of the user Admin, one for each kube-apiserver.
func (e *Environment) AdminConfigs() ([]*rest.Config, error) {
	var configs []*rest.Config
	for _, k := range e.KubeAPIServers {
		config, err := e.adminOf(k)
		if err != nil {
			return nil, err
		}
		configs = append(configs, config)
	}
	return configs, nil
}

// AdminKubeconfig returns the path of the kubeconfig of the user Admin.
func (e *Environment) AdminKubeconfig() (string, error) { return e.Kubeconfig(Admin, adminGroup) }

// AdminClient returns a client of the user Admin at the first kube-apiserver.
func (e *Environment) AdminClient() (kubernetes.Interface, error) {
	config, err := e.AdminConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// AdminConfig returns the client configuration of the user Admin at the first kube-apiserver.
func (e *Environment) AdminConfig() (*rest.Config, error) { return e.adminOf(e.KubeAPIServers[0]) }

var notFileName = regexp.MustCompile(`[^a-zA-Z0-9.-]+`)

// fileName converts a user name to a readable file name that is unique per user.
func fileName(s string) string {
	readable := notFileName.ReplaceAllString(s, "_")
	if len(readable) > 60 {
		readable = readable[:60]
	}
	return fmt.Sprintf("%s-%x", readable, sha256.Sum256([]byte(s)))[:min(len(readable)+9, 80)]
}

func dialer(h *host) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) { return h.dial(ctx, "tcp", address) }
}

// failedChecks returns only the lines of a verbose health response that report failed checks.
func failedChecks(body io.Reader) string {
	data, err := io.ReadAll(io.LimitReader(body, 64<<10))
	if err != nil {
		return err.Error()
	}
	var failed []string
	for line := range strings.SplitSeq(string(data), "\n") {
		if line != "" && !strings.HasPrefix(line, "[+]") {
			failed = append(failed, line)
		}
	}
	return strings.Join(failed, "; ")
}
