// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRoles checks that the user roles contain the kinds and their subresources, and no wildcard.
func TestRoles(t *testing.T) {
	roles, err := API().Roles("workshop")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, role := range roles {
		for _, rule := range role.Rules {
			got[role.Name] = append(got[role.Name], fmt.Sprint(strings.Join(rule.APIGroups, ","), " ",
				strings.Join(rule.Resources, ","), ": ", strings.Join(rule.Verbs, " ")))
		}
		level := strings.TrimPrefix(role.Name, "workshop-")
		if diff := cmp.Diff(map[string]string{"rbac.authorization.k8s.io/aggregate-to-" + level: "true"},
			role.Labels); diff != "" {
			t.Errorf("labels of %s (-want +got):\n%s", role.Name, diff)
		}
	}
	if diff := cmp.Diff(map[string][]string{
		"workshop-view": {
			"workshop.example.com gadgets: get list watch",
			"workshop.example.com parts: get list watch",
			"workshop.example.com widgets: get list watch",
			"workshop.example.com widgets/scale: get",
			"workshop.example.com widgets/status: get",
		},
		"workshop-edit": {
			"workshop.example.com gadgets: create update patch delete deletecollection",
			"workshop.example.com widgets: create update patch delete deletecollection",
			"workshop.example.com widgets/scale: update patch",
		},
		"workshop-admin": {
			"workshop.example.com widgets/calibrate: create",
			"workshop.example.com widgets/console: get create",
			"workshop.example.com widgets/log: get",
		},
	}, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}
