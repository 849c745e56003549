package v1

import (
	"k8s.io/apimachinery/pkg/conversion"

	v2 "git.example.org/platform/dbaas/apis/dbaas/v2"
)

// Convert_v1_DatabaseInstanceSpec_To_v2_DatabaseInstanceSpec converts volume to storage.
func Convert_v1_DatabaseInstanceSpec_To_v2_DatabaseInstanceSpec(in *DatabaseInstanceSpec, out *v2.DatabaseInstanceSpec, s conversion.Scope) error {
	out.Storage = in.Volume
	return autoConvert_v1_DatabaseInstanceSpec_To_v2_DatabaseInstanceSpec(in, out, s)
}

// Convert_v2_DatabaseInstanceSpec_To_v1_DatabaseInstanceSpec converts storage to volume.
func Convert_v2_DatabaseInstanceSpec_To_v1_DatabaseInstanceSpec(in *v2.DatabaseInstanceSpec, out *DatabaseInstanceSpec, s conversion.Scope) error {
	out.Volume = in.Storage
	return autoConvert_v2_DatabaseInstanceSpec_To_v1_DatabaseInstanceSpec(in, out, s)
}
