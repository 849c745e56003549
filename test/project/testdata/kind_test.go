package databaseinstance

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/extension-apiserver/pkg/apitesting"

	"git.example.org/platform/dbaas/apis/dbaas/install"
	v1 "git.example.org/platform/dbaas/apis/dbaas/v1"
	validation "git.example.org/platform/dbaas/validation/dbaas"
)

// stored returns a valid object as it is stored, with a change.
func stored(change func(*v1.DatabaseInstance)) *v1.DatabaseInstance {
	d := &v1.DatabaseInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "7", ResourceVersion: "5", Generation: 3},
		Spec: v1.DatabaseInstanceSpec{
			Engine: v1.EnginePostgreSQL, Replicas: new(int32(1)), Volume: quantity("10Gi"), MaxUnavailable: new(intstr.FromString("25%")),
		},
	}
	change(d)
	return d
}

func quantity(text string) *resource.Quantity { return new(resource.MustParse(text)) }

// TestRules checks the validation at its limits in each version, for a new object and for the same
// change of a stored one.
func TestRules(t *testing.T) {
	problems := func(errs field.ErrorList) (out []string) {
		for _, err := range errs {
			out = append(out, fmt.Sprintf("%s: %s", err.Field, err.ErrorBody()))
		}
		return out
	}
	for name, tc := range map[string]struct {
		change           func(*v1.DatabaseInstance)
		created, updated []string
	}{
		"valid": {func(*v1.DatabaseInstance) {}, nil, nil},
		"engine": {func(d *v1.DatabaseInstance) { d.Spec.Engine = v1.EngineMariaDB }, nil,
			[]string{"spec.engine: Invalid value: field is immutable"}},
		"a user twice": {func(d *v1.DatabaseInstance) { d.Spec.Users = []v1.DatabaseUser{{Name: "a"}, {Name: "a"}} },
			[]string{`spec.users[1]: Duplicate value: {"name":"a"}`}, []string{`spec.users[1]: Duplicate value: {"name":"a"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			for version, rules := range apitesting.Rules(t, Kind.NewStorage, install.AddToScheme, validation.AddToScheme) {
				created := problems(rules.Create(stored(tc.change)))
				updated := problems(rules.Update(stored(tc.change), stored(func(*v1.DatabaseInstance) {})))
				if diff := cmp.Diff([][]string{tc.created, tc.updated}, [][]string{created, updated}); diff != "" {
					t.Errorf("%s: errors on create and on update (-want +got):\n%s", version, diff)
				}
			}
		})
	}
}

// TestVolume checks that validation errors use the name of the field in each version.
func TestVolume(t *testing.T) {
	for version, rules := range apitesting.Rules(t, Kind.NewStorage, install.AddToScheme, validation.AddToScheme) {
		name := map[string]string{"v1": "spec.volume", "v2": "spec.storage"}[version]
		for volume, detail := range map[string]string{"9Gi": "must not shrink", "10Gi": "", "11Gi": ""} {
			errs := rules.Update(stored(func(d *v1.DatabaseInstance) { d.Spec.Volume = quantity(volume) }), stored(func(*v1.DatabaseInstance) {}))
			if (detail == "") != (len(errs) == 0) || detail != "" && (errs[0].Field != name || errs[0].Detail != detail) {
				t.Errorf("%s, %s: got %v, want %q about %s", version, volume, errs, detail, name)
			}
		}
	}
}
