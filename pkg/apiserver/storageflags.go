// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/pflag"
)

// StorageFlags returns the flags of the server that locate its storage, for commands that operate
// on it.
func (o *Options) StorageFlags() *pflag.FlagSet {
	flags := o.Flags()
	some := pflag.NewFlagSet("storage", pflag.ContinueOnError)
	for _, section := range []string{"server", "storage"} {
		flags.FlagSet(section).VisitAll(func(f *pflag.Flag) {
			if slices.Contains(storageFlags, f.Name) {
				some.AddFlag(f)
			}
		})
	}
	return some
}

// storageFlags are the names of the flags that locate the storage. Without an embedded etcd there
// is no --data-dir.
var storageFlags = []string{"data-dir", "etcd-servers", "etcd-cafile", "etcd-certfile", "etcd-keyfile", "etcd-prefix"}

// HasStorage returns whether the server stores objects in etcd.
func (o *Options) HasStorage() bool { return o.stores }

// ValidateStorage returns all that is wrong with the flags that say where the storage is.
func (o *Options) ValidateStorage() []error {
	if !o.stores {
		return nil
	}
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
			errs = append(errs, fmt.Errorf("read --%s: %w", flag.name, err))
		}
	}
	if (transport.CertFile == "") != (transport.KeyFile == "") {
		errs = append(errs, errors.New("--etcd-certfile and --etcd-keyfile must be set together"))
	}
	return errs
}
