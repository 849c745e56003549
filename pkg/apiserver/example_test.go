// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"errors"
	"fmt"

	"example.com/extension-apiserver/pkg/apiserver"
	"example.com/extension-apiserver/sample"
)

// Validate returns all errors in an API before anything is started.
func ExampleAPI_Validate() {
	api := sample.API()
	api.Groups[0].StorageVersion = "v7"
	fmt.Println(api.Validate())
	// Output: the API cannot be served: StorageVersion is "v7": must be one of [workshop.example.com/v1 workshop.example.com/v1beta1 workshop.example.com/v1alpha1]
}

// A server can be part of another program. Its options are the flags of the command serve.
func ExampleRun() {
	run := func(ctx context.Context) error {
		options, err := apiserver.NewOptions(sample.API())
		if err != nil {
			return err
		}
		options.DataDir = "/var/lib/extension-apiserver"
		options.Recommended.CoreAPI.CoreAPIKubeconfigPath = "server.kubeconfig"
		options.Recommended.SecureServing.ServerCert.CertKey.CertFile = "tls.crt"
		options.Recommended.SecureServing.ServerCert.CertKey.KeyFile = "tls.key"
		options.Complete()
		if problems := options.Validate(); len(problems) > 0 {
			return errors.Join(problems...)
		}
		return apiserver.Run(ctx, options)
	}
	_ = run // until its context is done
}
