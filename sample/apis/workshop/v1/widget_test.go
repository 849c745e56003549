// SPDX-License-Identifier: Apache-2.0

package v1

import "testing"

func TestWidgetDefaults(t *testing.T) {
	for _, tc := range []struct {
		name      string
		have, get WidgetSpec
	}{
		{"unset", WidgetSpec{Model: "m", Parts: []WidgetPart{{Name: "a"}, {Name: "b", Quantity: new(int32(3))}}},
			WidgetSpec{
				Model: "m", Grade: WidgetGradeStandard, Replicas: new(int32(1)),
				Parts: []WidgetPart{{Name: "a", Quantity: new(int32(1))}, {Name: "b", Quantity: new(int32(3))}},
			}},
		// Zero replicas is a valid setting, not a missing one.
		{"set", WidgetSpec{Grade: WidgetGradePremium, Replicas: new(int32(0)), MaxReplicas: new(int32(9))},
			WidgetSpec{Grade: WidgetGradePremium, Replicas: new(int32(0)), MaxReplicas: new(int32(9))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkDefaults(t, &Widget{Spec: *tc.have.DeepCopy()}, &Widget{Spec: tc.get})
			checkDefaults(t, &WidgetList{Items: []Widget{{Spec: *tc.have.DeepCopy()}}},
				&WidgetList{Items: []Widget{{Spec: tc.get}}})
		})
	}
}
