// SPDX-License-Identifier: Apache-2.0

package envtest

import "example.com/extension-apiserver/internal/controlplane"

// DefaultMinor is the default version of Kubernetes of the control plane. The variable
// ENVTEST_K8S_VERSION selects another. The libraries of the kit have this version.
const DefaultMinor = controlplane.DefaultMinor

// Minor returns the version of Kubernetes of the control plane, such as 1.36.
func Minor() string { return controlplane.Minor() }
