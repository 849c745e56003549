// SPDX-License-Identifier: Apache-2.0

package v1

import "testing"

func TestGadgetDefaults(t *testing.T) {
	for _, tc := range []struct {
		name      string
		have, get GadgetSpec
	}{
		{"unset", GadgetSpec{Purpose: "p"}, GadgetSpec{Purpose: "p", Precision: new(int32(2))}},
		{"zero", GadgetSpec{Precision: new(int32(0))}, GadgetSpec{Precision: new(int32(0))}},
		{"set", GadgetSpec{Precision: new(int32(6))}, GadgetSpec{Precision: new(int32(6))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkDefaults(t, &Gadget{Spec: tc.have}, &Gadget{Spec: tc.get})
			checkDefaults(t, &GadgetList{Items: []Gadget{{Spec: tc.have}}},
				&GadgetList{Items: []Gadget{{Spec: tc.get}}})
		})
	}
}
