// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"github.com/spf13/pflag"

	"example.com/extension-apiserver/pkg/storage"
)

// StorageFlags returns those of the server's flags that say where its storage is, for commands that operate it: who has the server's
// command line has theirs.
func (o *Options) StorageFlags() *pflag.FlagSet {
	flags := o.Flags()
	all := flags.FlagSet("storage")
	some := pflag.NewFlagSet("storage", pflag.ContinueOnError)
	for _, name := range []string{"data-dir", "etcd-servers", "etcd-cafile", "etcd-certfile", "etcd-keyfile", "etcd-prefix"} {
		some.AddFlag(all.Lookup(name))
	}
	return some
}

// StorageTarget returns the storage that the flags name, or all that is wrong with them.
func (o *Options) StorageTarget() (storage.Target, []error) {
	transport := o.Etcd.StorageConfig.Transport
	return storage.Target{DataDir: o.DataDir, Transport: transport, Prefix: o.Etcd.StorageConfig.Prefix}, o.validateEtcd()
}
