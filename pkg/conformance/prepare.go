// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// PrepareFrom returns a function for Target.Prepare that creates the objects of a YAML or JSON
// file in the namespace, or of all *.yaml files of a folder in the order of their names.
// Cluster-scoped objects are created once and remain after the run.
func PrepareFrom(path string) (func(ctx context.Context, config *rest.Config, namespace string) error, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	files := []string{path}
	if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*.yaml")); err != nil || len(files) == 0 {
			return nil, errors.Join(err, fmt.Errorf("%s has no *.yaml files", path))
		}
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		more, err := readObjects(file)
		if err != nil {
			return nil, err
		}
		objects = append(objects, more...)
	}
	return func(ctx context.Context, config *rest.Config, namespace string) error {
		return createAll(ctx, config, namespace, objects)
	}, nil
}

// readObjects reads the objects of a YAML or JSON file.
func readObjects(path string) (objects []*unstructured.Unstructured, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		obj := &unstructured.Unstructured{}
		switch err := decoder.Decode(&obj.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", path, err)
		case len(obj.Object) > 0:
			objects = append(objects, obj)
		}
	}
}

func createAll(ctx context.Context, config *rest.Config, namespace string, objects []*unstructured.Unstructured) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	resources, err := restmapper.GetAPIGroupResources(discoverer)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDiscoveryRESTMapper(resources)
	for _, obj := range objects {
		gvk := obj.GroupVersionKind()
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return fmt.Errorf("create %s %s: %w", gvk.Kind, obj.GetName(), err)
		}
		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			resource = client.Resource(mapping.Resource).Namespace(namespace)
		}
		obj = obj.DeepCopy()
		obj.SetNamespace("")
		_, err = resource.Create(ctx, obj, metav1.CreateOptions{})
		// A run has several namespaces, and cluster-scoped objects remain for the next run.
		if apierrors.IsAlreadyExists(err) && mapping.Scope.Name() != meta.RESTScopeNameNamespace {
			continue
		}
		if err != nil {
			return fmt.Errorf("create %s %s: %w", gvk.Kind, obj.GetName(), err)
		}
	}
	return nil
}
