// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	"example.com/extension-apiserver/sample/apis/workshop/install"
	"example.com/extension-apiserver/sample/apis/workshop/v1alpha1"
)

// A spec with every field, as v1 defines it, and as v1alpha1 defines it, whose fields differ.
const (
	widgetV1       = `{"model":"pendulum","grade":"Standard","replicas":2,"maxReplicas":5,"parts":[{"name":"screw","quantity":12},{"name":"frame","quantity":1,"material":"oak"}]}`
	widgetV1alpha1 = `{"design":"pendulum","quality":"Standard","scale":{"desired":2,"limit":5},"parts":[{"name":"screw","count":12},{"name":"frame","count":1}]}`
)

// eachWidgetVersion runs the test with the sample of each version.
func eachWidgetVersion(t *testing.T, test func(*testing.T, kindCase)) {
	t.Helper()
	for _, gv := range install.GroupVersions() {
		t.Run(gv.Version, func(t *testing.T) { test(t, inVersion(gv.Version)) })
	}
}

// inVersion returns widgetCase in another version.
func inVersion(version string) kindCase {
	k := widgetCase
	k.resource.Version, k.spec = version, widgetV1
	if version == v1alpha1.SchemeGroupVersion.Version {
		k.spec = widgetV1alpha1
	}
	return k
}

// renamed returns the name of a v1 field in the version.
func renamed(version, field string) string {
	if version != v1alpha1.SchemeGroupVersion.Version {
		return field
	}
	return strings.NewReplacer("spec.model", "spec.design", "spec.grade", "spec.quality", "spec.replicas",
		"spec.scale.desired",
		"spec.maxReplicas", "spec.scale.limit", "].quantity", "].count").Replace(field)
}
