// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// shared is the environment of all tests that leave it as they found it.
var shared *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, envtest.Options{}, &shared))
}

// resource is the resource of the preferred version.
func resource(name string) schema.GroupVersionResource {
	return install.GroupVersions()[0].WithResource(name)
}

// kindCase is what the tests that run for every kind need to know of one.
type kindCase struct {
	resource   schema.GroupVersionResource
	namespaced bool
	// sample is a file in sample/objects.
	sample string
	// change sets a field of the spec by a merge patch; field and value are what must then be there.
	change string
	field  []string
	value  any
	// spec, in JSON, takes the place of that of the sample, for versions that are shaped unlike it.
	spec string
}

// kindCases is filled by the files of the kinds.
var kindCases []kindCase

func (k kindCase) client(t testing.TB, config *rest.Config, namespace string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if !k.namespaced {
		return client.Resource(k.resource)
	}
	return client.Resource(k.resource).Namespace(namespace)
}

// object reads the sample and gives it a name of its own.
func (k kindCase) object(t testing.TB, name string) *unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "sample", "objects", k.sample))
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, obj); err != nil {
		t.Fatal(err)
	}
	if k.spec != "" {
		var spec map[string]any
		// The standard library's makes floats of all numbers.
		if err := json.Unmarshal([]byte(k.spec), &spec); err != nil {
			t.Fatal(err)
		}
		obj.Object["spec"] = spec
	}
	if k.resource.Version != "" {
		obj.SetAPIVersion(k.resource.GroupVersion().String())
	}
	obj.SetName(name)
	obj.SetNamespace("")
	return obj
}

// uniqueName returns a name for a cluster-scoped object that no other test uses.
func uniqueName(t testing.TB) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	return fmt.Sprintf("%s-%d", name, time.Now().UnixNano())
}

// invalidFields returns the fields that a 422 names, sorted.
func invalidFields(t *testing.T, err error) []string {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Fatalf("got %v, want Invalid", err)
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("got %T, want a Status", err)
	}
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		fields = append(fields, cause.Field)
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// named returns a sample file with another name for its object, without its namespace.
func named(t *testing.T, file, name string) string {
	t.Helper()
	k := kindCase{sample: filepath.Base(file)}
	data, err := yaml.Marshal(k.object(t, name).Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
