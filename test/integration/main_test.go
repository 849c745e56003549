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

// shared is the environment of all tests that leave it unchanged.
var shared *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, envtest.Options{}, &shared))
}

// resource returns a resource of the preferred version.
func resource(name string) schema.GroupVersionResource {
	return install.GroupVersions()[0].WithResource(name)
}

// kindCase describes a kind for the tests that run for every kind.
type kindCase struct {
	resource   schema.GroupVersionResource
	namespaced bool
	// sample is the name of a file in sample/objects.
	sample string
	// change is a merge patch that sets a field of the spec. field and value are the path and the
	// value that the field must then have.
	change string
	field  []string
	value  any
	// spec replaces the spec of the sample, in JSON, for versions whose fields differ from the
	// sample's.
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

// object returns the object of the sample with another name.
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
		// Use the JSON package of Kubernetes, because the standard library decodes all numbers as
		// floats.
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

// invalidFields returns the fields in the causes of a 422 error, sorted.
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

// named returns a sample file with another object name, without its namespace.
func named(t *testing.T, file, name string) string {
	t.Helper()
	k := kindCase{sample: filepath.Base(file)}
	data, err := yaml.Marshal(k.object(t, name).Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
