// SPDX-License-Identifier: Apache-2.0

package embeddedetcd_test

import (
	"fmt"

	"example.com/extension-apiserver/pkg/apiserver"
	"example.com/extension-apiserver/pkg/embeddedetcd"
)

// A server stores its objects in its own process if --etcd-servers is not set.
func ExampleServer() {
	api := apiserver.API{Name: "notes-apiserver", EmbeddedEtcd: embeddedetcd.Server{}}
	fmt.Println(api.EmbeddedEtcd.ValidateDataDir(""))
	// Output: [--data-dir is required for the embedded etcd, or --etcd-servers for an external one]
}
