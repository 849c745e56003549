// SPDX-License-Identifier: Apache-2.0

package install

import (
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/apis/workshop/v1alpha1"
	"example.com/extension-apiserver/sample/apis/workshop/v1beta1"
)

func init() {
	likeV1 := []string{
		`{"spec":{"model":"m","grade":"Premium","replicas":0,"maxReplicas":5,"parts":[{"name":"a","quantity":3,"material":"oak"},{"name":"b","material":"<tin>"}]},
			"status":{"replicas":1,"readyReplicas":1,"observedGeneration":2,"selector":"a=b","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`,
		// If two parts have the same name, v1alpha1 keeps only one material. Validation rejects
		// both such parts and the annotation.
		`{"metadata":{"annotations":{"materials.workshop.example.com/a":"steel","workshop.example.com/remark":"r"}},"spec":{"parts":[{"name":"a","material":"x"},{"name":"a","material":"y"}]}}`,
		`{"metadata":{"annotations":{"materials.workshop.example.com/a":"tin","workshop.example.com/remark":""}},"spec":{"parts":[{"name":"a"}]}}`,
	}
	conversionSeeds[v1.SchemeGroupVersion.WithKind("Widget")] = likeV1
	conversionSeeds[v1beta1.SchemeGroupVersion.WithKind("Widget")] = likeV1
	conversionSeeds[v1alpha1.SchemeGroupVersion.WithKind("Widget")] = []string{
		`{"metadata":{"annotations":{"materials.workshop.example.com/a":"oak","materials.workshop.example.com/gone":"tin"}},
			"spec":{"design":"m","quality":"Economy","scale":{"desired":0,"limit":5},"parts":[{"name":"a","count":3},{"name":"b"}],"remark":"r"}}`,
		`{"metadata":{"annotations":{"materials.workshop.example.com/a":"steel","workshop.example.com/remark":"old"}},"spec":{"parts":[{"name":"a"}],"remark":"new"}}`,
	}
}
