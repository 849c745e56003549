// SPDX-License-Identifier: Apache-2.0

package install

import (
	"sigs.k8s.io/randfill"

	"example.com/extension-apiserver/sample/apis/workshop"
)

func init() {
	fuzzers = append(fuzzers, func(s *workshop.GadgetSpec, c randfill.Continue) {
		c.FillNoCustom(s)
		if s.Precision == nil {
			s.Precision = new(int32(2))
		}
	})
}
