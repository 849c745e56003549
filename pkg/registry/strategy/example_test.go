// SPDX-License-Identifier: Apache-2.0

package strategy_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"example.com/extension-apiserver/pkg/registry/strategy"
	"example.com/extension-apiserver/sample/apis/workshop"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// The strategy of a kind embeds Base and implements only what is specific to the kind.
type gadgetStrategy struct{ strategy.Base }

func (gadgetStrategy) NamespaceScoped() bool { return false }

// The status is not written through the main resource in any version.
func ExampleBase_ResetFields() {
	scheme := runtime.NewScheme()
	if err := install.AddToScheme(scheme); err != nil {
		fmt.Println(err)
	}
	s := gadgetStrategy{strategy.New(scheme, workshop.GroupName)}
	for version, fields := range s.ResetFields("status") {
		fmt.Println(version, fields)
	}
	// Unordered output:
	// workshop.example.com/v1 .status
	// workshop.example.com/v1beta1 .status
	// workshop.example.com/v1alpha1 .status
}
