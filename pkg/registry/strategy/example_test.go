// SPDX-License-Identifier: Apache-2.0

package strategy_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"example.com/extension-apiserver/pkg/registry/strategy"
	"example.com/extension-apiserver/test/fixture/api"
	"example.com/extension-apiserver/test/fixture/install"
)

// The strategy of a kind embeds Base, and says only what is special about the kind.
type itemStrategy struct{ strategy.Base }

func (itemStrategy) NamespaceScoped() bool { return false }

// The status is not written through the main resource, in any version.
func ExampleBase_ResetFields() {
	scheme := runtime.NewScheme()
	if err := install.AddToScheme(scheme); err != nil {
		fmt.Println(err)
	}
	s := itemStrategy{strategy.New(scheme, api.GroupName)}
	for version, fields := range s.ResetFields("status") {
		fmt.Println(version, fields)
	}
	// Unordered output:
	// fixture.example.com/v1 .status
	// fixture.example.com/v1alpha1 .status
}
