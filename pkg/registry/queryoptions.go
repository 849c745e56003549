// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/internal/queryoptions"
)

// addQueryOptions registers the options type of a storage, such as that of a log, so that the
// library can decode it from the query of a request. It registers the type as an internal one and
// its conversion from a query, unless the scheme already has them.
func addQueryOptions(scheme *runtime.Scheme, storage rest.Storage, versions []schema.GroupVersion) error {
	options := queryoptions.Of(storage)
	if options == nil {
		return nil
	}
	if err := addInternal(scheme, options); err != nil {
		return fmt.Errorf("options of the type %T: %w", options, err)
	}
	for _, gv := range versions {
		inVersion, err := queryoptions.InVersion(scheme, options, gv)
		if err == nil {
			err = queryoptions.AddConversion(scheme, inVersion)
		}
		if err != nil {
			return fmt.Errorf("options of the type %T: %w", options, err)
		}
	}
	return nil
}
