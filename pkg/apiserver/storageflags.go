// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
)

// StorageFlags returns the flags of the server that locate its storage, for commands that operate
// on it.
func (o *Options) StorageFlags() *pflag.FlagSet {
	flags := o.Flags()
	some := pflag.NewFlagSet("storage", pflag.ContinueOnError)
	for _, name := range []string{"data-dir", "etcd-servers", "etcd-cafile", "etcd-certfile", "etcd-keyfile",
		"etcd-prefix"} {
		// Without an embedded etcd there is no flag --data-dir.
		if flag := flags.FlagSet("storage").Lookup(name); flag != nil {
			some.AddFlag(flag)
		}
	}
	return some
}

// ValidateStorage returns all validation errors of the flags that locate the storage.
func (o *Options) ValidateStorage() []error {
	if o.embedded() {
		// The embedded etcd sets the servers later. Validate as if it had.
		etcd := *o.Etcd
		etcd.StorageConfig.Transport.ServerList = []string{"unix:///"}
		return append(o.api.EmbeddedEtcd.ValidateDataDir(o.DataDir), etcd.Validate()...)
	}
	errs := o.Etcd.Validate()
	transport := o.Etcd.StorageConfig.Transport
	for _, flag := range []struct{ name, path string }{
		{"etcd-cafile", transport.TrustedCAFile}, {"etcd-certfile", transport.CertFile},
		{"etcd-keyfile", transport.KeyFile},
	} {
		if flag.path == "" {
			continue
		}
		if _, err := os.ReadFile(flag.path); err != nil {
			errs = append(errs, fmt.Errorf("--%s %s, expected a readable file: %w", flag.name, flag.path, err))
		}
	}
	if (transport.CertFile == "") != (transport.KeyFile == "") {
		errs = append(errs, fmt.Errorf("--etcd-certfile is %q and --etcd-keyfile is %q, expected both or neither",
			transport.CertFile, transport.KeyFile))
	}
	return errs
}
