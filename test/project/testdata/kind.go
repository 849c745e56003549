// Package databaseinstance describes the kind DatabaseInstance.
package databaseinstance

import (
	"context"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/extension-apiserver/pkg/registry"

	v1 "git.example.org/platform/dbaas/apis/dbaas/v1"
)

// Kind defines how the server serves this kind. Everything that is not set is as in built-in
// kinds.
var Kind = registry.Kind[*v1.DatabaseInstance]{
	ShortNames: []string{"dbi"},
	Columns: []registry.Column[*v1.DatabaseInstance]{
		{Name: "Engine", Value: func(d *v1.DatabaseInstance) any { return string(d.Spec.Engine) }},
		{Name: "Volume", Value: func(d *v1.DatabaseInstance) any { return d.Spec.Volume.String() }},
	},
	SelectableFields: map[string]func(*v1.DatabaseInstance) string{
		"spec.engine": func(d *v1.DatabaseInstance) string { return string(d.Spec.Engine) },
		"spec.volume": func(d *v1.DatabaseInstance) string { return d.Spec.Volume.String() },
	},
	Validate: validate,
	Subresources: map[string]registry.Subresource[*v1.DatabaseInstance]{
		"status": registry.Status[*v1.DatabaseInstance]{},
		"scale":  registry.Scale[*v1.DatabaseInstance]{},
	},
}

var smallest = resource.MustParse("1Gi")

// validate checks that a volume is large enough for an empty database and does not shrink.
func validate(_ context.Context, d, old *v1.DatabaseInstance) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "volume")
	if d.Spec.Volume.Cmp(smallest) < 0 {
		errs = append(errs, field.Invalid(path, d.Spec.Volume.String(), "must be at least 1Gi"))
	}
	if old != nil && d.Spec.Volume.Cmp(*old.Spec.Volume) < 0 {
		errs = append(errs, field.Invalid(path, d.Spec.Volume.String(), "must not shrink"))
	}
	return errs
}
