// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/registration"
)

// SampleGroupVersion is what k8s.io/sample-apiserver serves: flunders.
var SampleGroupVersion = schema.GroupVersion{Group: "wardle.example.com", Version: "v1alpha1"}

// StartSampleAPIServer starts k8s.io/sample-apiserver, to compare our server with it, and registers its API. It has the
// rights and the certificate of our servers, and its objects are in the etcd of kube-apiserver. Needs the network Loopback.
func (e *Environment) StartSampleAPIServer(ctx context.Context, environment ...string) (*Server, error) {
	if err := e.binaries.Ensure(ctx, "sample-apiserver"); err != nil {
		return nil, err
	}
	h := loopbackHost(&e.ports)
	port, err := h.port(serverPort)
	if err != nil {
		return nil, err
	}
	s := &Server{Name: "sample-apiserver", host: h, URL: fmt.Sprintf("https://%s:%d", h.address, port), environment: environment}
	s.command = []string{
		e.Binary("sample-apiserver"),
		"--kubeconfig=" + e.serverKubeconfig,
		"--authentication-kubeconfig=" + e.serverKubeconfig,
		"--authorization-kubeconfig=" + e.serverKubeconfig,
		"--bind-address=" + h.address,
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + e.pki.cert(certs.ServingDir),
		"--tls-private-key-file=" + e.pki.key(certs.ServingDir),
		"--etcd-servers=" + e.etcd.url,
		"--etcd-cafile=" + e.pki.cert("control-plane-ca"),
		"--etcd-certfile=" + e.pki.cert(e.etcd.client),
		"--etcd-keyfile=" + e.pki.key(e.etcd.client),
	}
	if err := e.runServer(ctx, s); err != nil {
		return nil, err
	}
	s.killed = true                              // it waits for the watches of kube-controller-manager; nothing that it has is needed
	return s, e.registerSample(ctx, int32(port)) //nolint:gosec // a port
}

func (e *Environment) registerSample(ctx context.Context, port int32) error {
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
	services := []*apiregistrationv1.APIService{{
		ObjectMeta: metav1.ObjectMeta{Name: SampleGroupVersion.Version + "." + SampleGroupVersion.Group},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: SampleGroupVersion.Group, Version: SampleGroupVersion.Version, GroupPriorityMinimum: 1000, VersionPriority: 10,
			Service: &apiregistrationv1.ServiceReference{Namespace: Namespace, Name: ServiceName, Port: &port}, CABundle: caBundle,
		},
	}}
	if err := registration.Apply(ctx, client.APIServices(), services); err != nil {
		return err
	}
	return eventually(ctx, "the APIService of sample-apiserver", registerTimeout, func(ctx context.Context) error {
		return registration.Available(ctx, client.APIServices(), services)
	})
}
