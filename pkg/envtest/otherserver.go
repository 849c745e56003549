// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/registration"
)

// SampleGroupVersion is the group and version of k8s.io/sample-apiserver, which serves flunders.
var SampleGroupVersion = schema.GroupVersion{Group: "wardle.example.com", Version: "v1alpha1"}

// OtherServer is an API server that is based on k8s.io/apiserver but not on the kit. It must have
// the flags of that library.
type OtherServer struct {
	// Path is the path of the program. Args are flags in addition to those for serving,
	// authentication and authorization.
	Path string
	Args []string
	// KubeconfigFlag is the flag for the kubeconfig of its own clients. Default: kubeconfig.
	KubeconfigFlag string
	// GroupVersions are registered. The server must serve them.
	GroupVersions []schema.GroupVersion
	// Environment contains additional environment variables as KEY=VALUE.
	Environment []string
}

// StartSampleAPIServer starts k8s.io/sample-apiserver, which stores its objects in the etcd of
// kube-apiserver. See StartOther.
func (e *Environment) StartSampleAPIServer(ctx context.Context, environment ...string) (*Server, error) {
	if err := e.binaries.Ensure(ctx, "sample-apiserver"); err != nil {
		return nil, err
	}
	return e.StartOther(ctx, OtherServer{Path: e.Binary("sample-apiserver"),
		GroupVersions: []schema.GroupVersion{SampleGroupVersion}, Environment: environment, Args: []string{
			"--etcd-servers=" + e.etcd.url,
			"--etcd-cafile=" + e.pki.cert("control-plane-ca"),
			"--etcd-certfile=" + e.pki.cert(e.etcd.client),
			"--etcd-keyfile=" + e.pki.key(e.etcd.client),
		}})
}

// StartOther starts another server, to compare the kit's server with it, and registers its API.
// It has the permissions and the certificate of the kit's servers. It needs the network Loopback.
func (e *Environment) StartOther(ctx context.Context, other OtherServer) (*Server, error) {
	h := loopbackHost(&e.ports)
	port, err := h.port(serverPort)
	if err != nil {
		return nil, err
	}
	s := &Server{Name: filepath.Base(other.Path), host: h, URL: fmt.Sprintf("https://%s:%d", h.address, port),
		environment: other.Environment}
	s.command = append([]string{
		other.Path,
		"--" + cmp.Or(other.KubeconfigFlag, "kubeconfig") + "=" + e.serverKubeconfig,
		"--authentication-kubeconfig=" + e.serverKubeconfig,
		"--authorization-kubeconfig=" + e.serverKubeconfig,
		"--bind-address=" + h.address,
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + e.pki.cert(certs.ServingDir),
		"--tls-private-key-file=" + e.pki.key(certs.ServingDir),
	}, other.Args...)
	if err := e.runServer(ctx, s); err != nil {
		return nil, err
	}
	// It waits for the watches of kube-controller-manager, and none of its data is needed, so
	// kill it.
	s.killed = true
	return s, e.registerOther(ctx, other.GroupVersions, int32(port)) //nolint:gosec // a port
}

func (e *Environment) registerOther(ctx context.Context, versions []schema.GroupVersion, port int32) error {
	caBundle, err := os.ReadFile(e.pki.cert(certs.ServingCADir))
	if err != nil {
		return err
	}
	config, err := e.AdminConfig()
	if err != nil {
		return err
	}
	client, err := apiregistration.NewForConfig(config)
	if err != nil {
		return err
	}
	services := []*apiregistrationv1.APIService{}
	for _, v := range versions {
		services = append(services, &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: v.Version + "." + v.Group},
			Spec: apiregistrationv1.APIServiceSpec{
				Group: v.Group, Version: v.Version, GroupPriorityMinimum: 1000, VersionPriority: 10,
				Service:  &apiregistrationv1.ServiceReference{Namespace: Namespace, Name: ServiceName, Port: &port},
				CABundle: caBundle,
			},
		})
	}
	if err := registration.Apply(ctx, client.APIServices(), services); err != nil {
		return err
	}
	return eventually(ctx, "the APIServices of another server", registerTimeout, func(ctx context.Context) error {
		return registration.CheckAvailable(ctx, client.APIServices(), services)
	})
}
