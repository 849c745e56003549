// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"example.com/extension-apiserver/sample/apis/workshop"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// TestStoredEncoding: objects are stored in protobuf unless the flag selects another media type,
// which the library's EtcdOptions.ApplyTo would ignore.
func TestStoredEncoding(t *testing.T) {
	for _, tc := range []struct{ mediaType, prefix string }{
		{"", "k8s\x00"},
		{runtime.ContentTypeProtobuf, "k8s\x00"},
		{runtime.ContentTypeJSON, "{"},
	} {
		t.Run(tc.mediaType, func(t *testing.T) {
			o := mustOptions(testAPI)
			if tc.mediaType != "" {
				o.Etcd.DefaultStorageMediaType = tc.mediaType
			}
			data := storedGadget(t, o)
			if !bytes.HasPrefix(data, []byte(tc.prefix)) ||
				!bytes.Contains(data, []byte(v1.SchemeGroupVersion.String())) {
				t.Errorf("stored gadget: got %q, want %s that begins with %q", data, v1.SchemeGroupVersion, tc.prefix)
			}
		})
	}
}

// TestStoredVersion: the stored version need not be the preferred one, as in a reversible
// upgrade. It can be an alpha version, which the library would skip.
func TestStoredVersion(t *testing.T) {
	for _, version := range []string{"v2", "v1alpha1"} {
		other := schema.GroupVersion{Group: workshop.GroupName, Version: version}
		both := func(scheme *runtime.Scheme) error {
			scheme.AddKnownTypes(other, &v1.Gadget{}, &v1.GadgetList{})
			metav1.AddToGroupVersion(scheme, other)
			return errors.Join(addToScheme(scheme), scheme.SetVersionPriority(other, v1.SchemeGroupVersion))
		}
		for _, stored := range []schema.GroupVersion{v1.SchemeGroupVersion, other} {
			two := withGroup(func(g *Group) { g.AddToScheme, g.StorageVersion = both, stored.Version })
			if err := two.Validate(); err != nil {
				t.Fatal(err)
			}
			if data := storedGadget(t, mustOptions(two)); !bytes.Contains(data, []byte(stored.String())) {
				t.Errorf("stored gadget: got %q, want %s", data, stored)
			}
		}
	}
}

// storedGadget returns a gadget in the encoding in which it is stored in etcd.
func storedGadget(t *testing.T, o *Options) []byte {
	t.Helper()
	factory, err := o.newStorageFactory(o.Etcd)
	if err != nil {
		t.Fatal(err)
	}
	config, err := factory.NewConfig(workshop.Resource("gadgets"), &v1.Gadget{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := runtime.Encode(config.Codec, &v1.Gadget{Spec: v1.GadgetSpec{Purpose: "measures"}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestStorageConnections: the stores export spans to the configured collector and report object
// counts to API Priority and Fairness. The library configures neither.
func TestStorageConnections(t *testing.T) {
	o, c := mustOptions(testAPI), &serverConfig{generic: genericapiserver.NewRecommendedConfig(testCodecs)}
	o.DataDir = t.TempDir()
	o.Recommended.Traces.ConfigFile = filepath.Join(t.TempDir(), "tracing.yaml")
	if err := os.WriteFile(o.Recommended.Traces.ConfigFile,
		[]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := c.generic.TracerProvider
	if err := o.applyTraces(c); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.etcd, err = o.startEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer c.etcd.stop()
	if err := o.applyStorage(c); err != nil {
		t.Fatal(err)
	}
	got, err := c.generic.RESTOptionsGetter.GetRESTOptions(workshop.Resource("gadgets"), &v1.Gadget{})
	if err != nil {
		t.Fatal(err)
	}
	if provider := got.StorageConfig.Transport.TracerProvider; provider != c.generic.TracerProvider ||
		provider == before {
		t.Errorf("spans of the storage: got %T, want that of the server, %T", provider, c.generic.TracerProvider)
	}
	if got.StorageObjectCountTracker == nil || got.StorageObjectCountTracker != c.generic.StorageObjectCountTracker {
		t.Errorf("counts of objects: got %v, want the tracker of the server", got.StorageObjectCountTracker)
	}
}

// TestEtcdUnreachable: a wrong address is reported within 9 s.
func TestEtcdUnreachable(t *testing.T) {
	t.Parallel()
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err = waitForEtcd(t.Context(), storagebackend.TransportConfig{ServerList: []string{address}})
	if took := time.Since(began); took > 9*time.Second {
		t.Errorf("got the response after %s, want it within 9 s", took)
	}
	for _, want := range []string{"read from etcd [" + address + "]",
		"check --etcd-servers, --etcd-cafile, --etcd-certfile, --etcd-keyfile and whether etcd runs"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}

// TestEtcdCertificateUnreadable: a permanent error is returned at once.
func TestEtcdCertificateUnreadable(t *testing.T) {
	err := waitForEtcd(t.Context(), storagebackend.TransportConfig{ServerList: []string{"https://127.0.0.1:1"},
		TrustedCAFile: "/none"})
	if err == nil || !strings.HasPrefix(err.Error(), "load etcd client certificate: ") {
		t.Errorf("got error %v, want one about the certificate", err)
	}
}
