// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/pkg/apis/workshop/install"
	"example.com/extension-apiserver/pkg/certs"
	"example.com/extension-apiserver/pkg/registration"
)

// registerTimeout: kube-apiserver looks at a new APIService at once, and at discovery that failed only each minute.
const registerTimeout = 90 * time.Second

// Register makes the Service and, last, the APIServices, and waits at every kube-apiserver until they are Available, are
// in discovery and OpenAPI, and a write succeeds: a server can be Available and Ready while it refuses every write.
func (e *Environment) Register(ctx context.Context) error {
	if err := e.applyService(ctx); err != nil {
		return err
	}
	caBundle, err := os.ReadFile(e.pki.cert(certs.ServingCADir))
	if err != nil {
		return err
	}
	services := registration.APIServices(install.GroupVersions(), registration.Backend{Namespace: Namespace, Name: ServiceName, Port: e.servicePort(), CABundle: caBundle})
	for i, k := range e.KubeAPIServers {
		config, err := e.adminOf(k)
		if err != nil {
			return err
		}
		client, err := apiregistration.NewForConfig(config)
		if err != nil {
			return err
		}
		if i == 0 {
			if err := registration.Apply(ctx, client.APIServices(), services); err != nil {
				return err
			}
		}
		if err := eventually(ctx, "the APIServices", registerTimeout, func(ctx context.Context) error {
			return registration.Available(ctx, client.APIServices(), services)
		}); err != nil {
			return err
		}
		if err := eventually(ctx, "discovery and OpenAPI", registerTimeout, func(context.Context) error {
			client, err := discovery.NewDiscoveryClientForConfig(config)
			if err != nil {
				return err
			}
			return errors.Join(registration.Discovered(client, install.GroupVersions()), registration.Described(client.OpenAPIV3(), install.GroupVersions()))
		}); err != nil {
			return err
		}
		if err := eventually(ctx, "a write", registerTimeout, func(ctx context.Context) error { return e.tryWrites(ctx, config) }); err != nil {
			return err
		}
	}
	return nil
}

// tryWrites creates every sample under a generated name, as a dry run: everything happens but the last step into etcd,
// which /readyz answers for.
func (e *Environment) tryWrites(ctx context.Context, config *rest.Config) error {
	files, err := filepath.Glob(filepath.Join(e.root, "manifests", "samples", "*.yaml"))
	if err != nil || len(files) == 0 {
		return errors.Join(errors.New("find samples: there are none in manifests/samples"), err)
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoveryClient))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &obj.Object); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		mapping, err := mapper.RESTMapping(obj.GroupVersionKind().GroupKind(), obj.GroupVersionKind().Version)
		if err != nil {
			return fmt.Errorf("find the resource of %s: %w", file, err)
		}
		namespace := obj.GetNamespace()
		obj.SetName("")
		obj.SetGenerateName("registration-")
		_, err = dynamicClient.Resource(mapping.Resource).Namespace(namespace).
			Create(ctx, obj, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return fmt.Errorf("create %s as a dry run: %w", file, err)
		}
	}
	return nil
}

// createOrUpdate applies one object that nobody else changes.
func createOrUpdate[T any](ctx context.Context, obj T,
	create func(context.Context, T, metav1.CreateOptions) (T, error),
	update func(context.Context, T, metav1.UpdateOptions) (T, error)) error {
	_, err := create(ctx, obj, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = update(ctx, obj, metav1.UpdateOptions{})
	}
	return err
}
