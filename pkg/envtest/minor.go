// SPDX-License-Identifier: Apache-2.0

package envtest

import "example.com/extension-apiserver/internal/controlplane"

// DefaultMinor is the version of Kubernetes whose control plane is started, unless the variable ENVTEST_K8S_VERSION
// names another. The libraries of the kit are of it.
const DefaultMinor = controlplane.DefaultMinor

// Minor is the version of Kubernetes whose control plane is started, such as 1.36.
func Minor() string { return controlplane.Minor() }
