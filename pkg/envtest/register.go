// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/registration"
)

// registerTimeout is long because kube-apiserver checks a new APIService at once, but retries
// failed discovery only each minute.
const registerTimeout = 90 * time.Second

// Register creates the Service and then the APIServices. It waits at every kube-apiserver until
// they are Available, are in discovery and OpenAPI, and the server accepts writes. A server can
// be Available and ready while it still rejects all writes.
func (e *Environment) Register(ctx context.Context) error {
	if err := e.applyService(ctx); err != nil {
		return err
	}
	services, err := e.apiServices(ctx)
	if err != nil {
		return err
	}
	var versions []schema.GroupVersion
	for _, service := range services {
		versions = append(versions, schema.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version})
	}
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
			return registration.CheckAvailable(ctx, client.APIServices(), services)
		}); err != nil {
			return err
		}
		if err := eventually(ctx, "discovery and OpenAPI", registerTimeout, func(context.Context) error {
			client, err := discovery.NewDiscoveryClientForConfig(config)
			if err != nil {
				return err
			}
			return errors.Join(registration.Discovered(client, versions),
				registration.CheckOpenAPI(client.OpenAPIV3(), versions))
		}); err != nil {
			return err
		}
		if err := eventually(ctx, "a write", registerTimeout,
			func(ctx context.Context) error { return tryWrites(ctx, config, versions) }); err != nil {
			return err
		}
	}
	return nil
}

// apiServices returns the APIServices that the server's binary prints for its versions.
func (e *Environment) apiServices(ctx context.Context) ([]*apiregistrationv1.APIService, error) {
	cmd := exec.CommandContext(ctx, e.server, "apiservices", "--namespace="+Namespace, "--service="+ServiceName,
		fmt.Sprintf("--port=%d", e.servicePort()), "--ca-file="+e.pki.cert(certs.ServingCADir))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, stderr.Bytes())
	}
	var services []*apiregistrationv1.APIService
	for documents := yaml.NewYAMLToJSONDecoder(&stdout); ; {
		service := &apiregistrationv1.APIService{}
		if err := documents.Decode(service); errors.Is(err, io.EOF) {
			return services, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the APIServices: %w", err)
		}
		services = append(services, service)
	}
}

// notReady is part of the library's 403 response before the informers of admission plugins have
// synced.
const notReady = "not yet ready to handle request"

// tryWrites creates an empty object of every resource as a dry run. The object may be invalid for
// its kind, before validating admission plugins run, and a plugin of the API may reject it. An
// IdentityReview is complete and passes all of them.
func tryWrites(ctx context.Context, config *rest.Config, versions []schema.GroupVersion) error {
	// Do not log warnings about deprecated versions.
	config = rest.CopyConfig(config)
	config.WarningHandlerWithContext = rest.NoWarnings{}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	for _, gv := range versions {
		resources, err := discoveryClient.ServerResourcesForGroupVersion(gv.String())
		if err != nil {
			return err
		}
		for _, resource := range resources.APIResources {
			if strings.Contains(resource.Name, "/") || !slices.Contains(resource.Verbs, "create") {
				continue
			}
			var client dynamic.ResourceInterface = dynamicClient.Resource(gv.WithResource(resource.Name))
			if resource.Namespaced {
				client = dynamicClient.Resource(gv.WithResource(resource.Name)).Namespace(metav1.NamespaceDefault)
			}
			obj := &unstructured.Unstructured{}
			obj.SetGroupVersionKind(gv.WithKind(resource.Kind))
			obj.SetGenerateName("registration-")
			_, err := client.Create(ctx, obj, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			refused := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) && !strings.Contains(err.Error(), notReady)
			if err != nil && !refused {
				return fmt.Errorf("create one of %s as a dry run: %w", resource.Name, err)
			}
		}
	}
	return nil
}

// createOrUpdate applies an object that no other client changes.
func createOrUpdate[T any](ctx context.Context, obj T,
	create func(context.Context, T, metav1.CreateOptions) (T, error),
	update func(context.Context, T, metav1.UpdateOptions) (T, error)) error {
	_, err := create(ctx, obj, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = update(ctx, obj, metav1.UpdateOptions{})
	}
	return err
}
