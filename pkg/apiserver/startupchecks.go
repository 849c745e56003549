// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"example.com/extension-apiserver/internal/authentication"
	"example.com/extension-apiserver/internal/fairness"
	"example.com/extension-apiserver/internal/frontproxy"
)

const (
	// startTimeout limits the wait for kube-apiserver and etcd at start. It is long enough for a
	// restart of either. With the last attempt, which takes at most attemptTimeout, a wrong
	// address is reported within 10 s.
	startTimeout   = 6 * time.Second
	attemptTimeout = 3 * time.Second
)

// cluster contains the clients and the findings that a server needs before it serves.
type cluster struct {
	// authentication and core are clients with the credentials of --authentication-kubeconfig and
	// --kubeconfig. Informers use core.
	authentication, core kubernetes.Interface
	// unserved contains the parts of the server that need an API that the cluster does not serve.
	unserved sets.Set[string]
	// reviews are the permissions to send reviews and to read the trust ConfigMap.
	reviews []need
}

// connect checks that the port is free and waits until the cluster provides the front-proxy
// trust.
func (o *Options) connect(ctx context.Context) (c cluster, err error) {
	if err := o.checkPort(ctx); err != nil {
		return c, err
	}
	if c.authentication, err = newClient(o.Recommended.Authentication.RemoteKubeConfigFile, 0); err != nil {
		return c, err
	}
	if c.core, err = newClient(o.Recommended.CoreAPI.CoreAPIKubeconfigPath, 0); err != nil {
		return c, err
	}
	if err := waitForTrust(ctx, c.authentication, o.Trust.tolerated(), o.api.Name); err != nil {
		return c, err
	}
	if c.unserved, err = findUnserved(c.core); err != nil {
		return c, err
	}
	c.reviews, err = o.reviews(c.authentication)
	return c, err
}

// reviews returns the permissions to send reviews and to read the trust ConfigMap, each with the
// client that uses it.
func (o *Options) reviews(authentication kubernetes.Interface) ([]need, error) {
	authorization, err := newClient(o.Recommended.Authorization.RemoteKubeConfigFile, 0)
	if err != nil {
		return nil, err
	}
	needed := []need{{accessReviews, authorization}, {trustReads, authentication}}
	if o.Trust.BearerTokens {
		needed = append(needed, need{tokenReviews, authentication})
	}
	return needed, nil
}

// checkPort returns an error with a hint if the port is in use. The library would report it only
// after etcd has started.
func (o *Options) checkPort(ctx context.Context) error {
	serving := o.Recommended.SecureServing
	if serving.PermitPortSharing || serving.PermitAddressSharing {
		return nil
	}
	address := net.JoinHostPort(serving.BindAddress.String(), strconv.Itoa(serving.BindPort))
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("%w; choose another --secure-port or --bind-address, or stop the process that uses it", err)
	}
	return l.Close()
}

// loadKubeconfig reads a kubeconfig file. An empty path means the ServiceAccount of the pod.
func loadKubeconfig(path string) (*rest.Config, error) {
	if path == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: path}, &clientcmd.ConfigOverrides{}).ClientConfig()
}

// ownNamespace returns the namespace of the server: that of the context in a kubeconfig, or of
// the pod.
func ownNamespace(path string) (string, error) {
	namespace, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: path}, &clientcmd.ConfigOverrides{}).Namespace()
	if err != nil {
		return "", fmt.Errorf("read the namespace of kubeconfig %q: %w", path, err)
	}
	return namespace, nil
}

// clientQPS and clientBurst are the limits that the library uses for delegated reviews. The
// default of 5 requests per second would throttle the server's users.
const (
	clientQPS   = 200
	clientBurst = 400
)

// newClient returns a client for the server's own reviews and checks. timeout applies to each
// request; 0 means no timeout.
func newClient(path string, timeout time.Duration) (kubernetes.Interface, error) {
	config, err := loadKubeconfig(path)
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig %q: %w", path, err)
	}
	config.Timeout = timeout
	config.RateLimiter = fairness.NewRateLimiter(clientQPS, clientBurst)
	return kubernetes.NewForConfig(config)
}

// waitForTrust waits until kube-apiserver responds with the front-proxy trust. It returns
// permanent errors (a missing permission, an unconfigured aggregation layer) at once, and others
// after startTimeout.
func waitForTrust(ctx context.Context, client kubernetes.Interface, tolerated sets.Set[string],
	component string) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, time.Second, startTimeout, true, func(context.Context) (bool, error) {
		// The context of the poll is not used: an attempt that it cancels would hide why the
		// others failed.
		ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		cm, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, frontproxy.ConfigMapName,
			metav1.GetOptions{})
		switch {
		case err == nil:
			return true, authentication.Evaluate(cm, tolerated).FrontProxy
		case apierrors.IsForbidden(err):
			return false, forbiddenTrust(ctx, client, component, err)
		case apierrors.IsUnauthorized(err):
			return false, fmt.Errorf("kube-apiserver rejects the credentials in the kubeconfig: %w", err)
		}
		if last == nil {
			klog.InfoS("Waiting for kube-apiserver", "err", err)
		}
		last = err
		return false, nil
	})
	if last != nil && wait.Interrupted(err) {
		return fmt.Errorf("read ConfigMap %s/%s from kube-apiserver within %s: %w; check the address in the "+
			"kubeconfig and whether kube-apiserver runs",
			metav1.NamespaceSystem, frontproxy.ConfigMapName, startTimeout, last)
	}
	return err
}

// forbiddenTrust returns an error that names the missing RoleBinding and the command that creates
// it for the server's identity.
func forbiddenTrust(ctx context.Context, client kubernetes.Interface, component string, cause error) error {
	subject := "--user=USER"
	if review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{}); err == nil {
		name := review.Status.UserInfo.Username
		subject = "--user=" + name
		if account, ok := strings.CutPrefix(name, "system:serviceaccount:"); ok {
			subject = "--serviceaccount=" + account
		}
	}
	return fmt.Errorf("read ConfigMap %s/%s: %w; a RoleBinding to the Role %s is missing in the namespace %s, "+
		"create it with: kubectl create rolebinding %s-auth-reader -n %s --role=%s %s",
		metav1.NamespaceSystem, frontproxy.ConfigMapName, cause, frontproxy.ConfigMapName+"-reader",
		metav1.NamespaceSystem, component, metav1.NamespaceSystem, frontproxy.ConfigMapName+"-reader", subject)
}
