// SPDX-License-Identifier: Apache-2.0

package install

import (
	"sigs.k8s.io/randfill"

	"example.com/extension-apiserver/pkg/apis/workshop"
)

func init() {
	fuzzers = append(fuzzers, func(s *workshop.WidgetSpec, c randfill.Continue) {
		c.FillNoCustom(s)
		if s.Grade == "" {
			s.Grade = workshop.WidgetGradeStandard
		}
		if s.Replicas == nil {
			s.Replicas = new(int32(1))
		}
	}, func(p *workshop.WidgetPart, c randfill.Continue) {
		c.FillNoCustom(p)
		if p.Quantity == nil {
			p.Quantity = new(int32(1))
		}
	})
}
