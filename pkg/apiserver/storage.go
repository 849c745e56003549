// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"path"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"example.com/extension-apiserver/internal/etcdclient"
)

// newStorageFactory returns the library's factory for several resources. EtcdOptions.ApplyTo uses
// a simpler one, which ignores --storage-media-type. The factory stores each kind in the first
// version of a scheme that registers the kind.
func (o *Options) newStorageFactory(etcd *genericoptions.EtcdOptions) (serverstorage.StorageFactory, error) {
	scheme, err := o.api.storageScheme()
	if err != nil {
		return nil, err
	}
	factory := serverstorage.NewDefaultStorageFactory(
		etcd.StorageConfig, etcd.DefaultStorageMediaType, o.codecs,
		storageEncoding{serverstorage.NewDefaultResourceEncodingConfig(scheme), scheme},
		serverstorage.NewResourceConfig(), nil)
	for _, g := range o.api.Groups {
		// The keys have the form that kube-apiserver uses for custom resources:
		// /registry/GROUP/RESOURCE/NAMESPACE/NAME.
		factory.SetEtcdPrefix(schema.GroupResource{Group: g.Name, Resource: "*"},
			path.Join(etcd.StorageConfig.Prefix, g.Name))
	}
	return factory, nil
}

// storageEncoding stores each kind in the first version that registers it. The library would skip
// alpha versions, and versions that were introduced after the release with which it is
// compatible. Group.StorageVersion decides instead.
type storageEncoding struct {
	*serverstorage.DefaultResourceEncodingConfig
	scheme *runtime.Scheme
}

// BackwardCompatibileStorageEncodingFor implements
// serverstorage.CompatibilityResourceEncodingConfig.
func (e storageEncoding) BackwardCompatibileStorageEncodingFor(resource schema.GroupResource,
	example runtime.Object) (schema.GroupVersion, error) {
	gvks, _, err := e.scheme.ObjectKinds(example)
	if err != nil {
		return schema.GroupVersion{}, fmt.Errorf("find the kind of %s: %w", resource, err)
	}
	for _, gvk := range gvks {
		if gvk.Group != resource.Group {
			continue
		}
		for _, gv := range e.scheme.VersionsForGroupKind(gvk.GroupKind()) {
			if gv.Version != runtime.APIVersionInternal {
				return gv, nil
			}
		}
	}
	return schema.GroupVersion{}, fmt.Errorf("find the stored version of %s: no version has %T", resource, example)
}

// etcd is the etcd of a server, if it has one. If it is embedded, failed receives its error, and
// stop stops it.
type etcd struct {
	transport storagebackend.TransportConfig
	failed    <-chan error
	stop      func()
}

// startEtcd starts the embedded etcd, or waits until the external one responds, unless the server
// stores no objects. Call stop after the server has stopped.
func (o *Options) startEtcd(ctx context.Context) (etcd, error) {
	if !o.stores {
		return etcd{stop: func() {}}, nil
	}
	transport := o.Etcd.StorageConfig.Transport
	if !o.embedded() {
		return etcd{transport: transport, stop: func() {}}, waitForEtcd(ctx, transport)
	}
	endpoint, failed, stop, err := o.api.EmbeddedEtcd.Start(ctx, o.DataDir)
	if err != nil {
		return etcd{}, err
	}
	transport.ServerList = []string{endpoint}
	return etcd{transport, failed, stop}, nil
}

// waitForEtcd reads one key from the external etcd. Without this check the library starts, and an
// unreachable etcd is visible only in /readyz and as a timeout of each request.
func waitForEtcd(ctx context.Context, t storagebackend.TransportConfig) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := newEtcdClient(ctx, t)
	if err != nil {
		return err
	}
	defer client.Close()
	began := time.Now()
	if _, err := client.Get(ctx, "health"); err != nil {
		return fmt.Errorf("read from etcd %v for %s: %w; check --etcd-servers, --etcd-cafile, "+
			"--etcd-certfile, --etcd-keyfile and whether etcd runs",
			t.ServerList, time.Since(began).Round(time.Second), err)
	}
	return nil
}

// newEtcdClient returns a client that connects on first use. ctx limits its requests.
func newEtcdClient(ctx context.Context, t storagebackend.TransportConfig) (*clientv3.Client, error) {
	config, err := etcdclient.Config(ctx, t)
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd %v: %w", t.ServerList, err)
	}
	return client, nil
}
