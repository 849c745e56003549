// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"strconv"

	"example.com/extension-apiserver/internal/catalogue"
)

// checkCounts checks that agents learn the number of servers. An agent connects until it has as
// many servers as Leases or --server-count specify; with too few, some kube-apiserver has no
// agent. The manifests of static pods do not contain their number, so the package live checks
// that.
func checkCounts(s *set) []catalogue.Finding {
	var out []catalogue.Finding
	for _, p := range s.servers {
		leases := p.enabled("enable-lease-controller")
		if leases && p.flags["kubeconfig"] == "" {
			out = append(out, finding(p.String(), "no --kubeconfig, with which the server writes its Lease"))
		}
		count := p.flag("server-count")
		if !leases && p.replicas > 0 && count != strconv.Itoa(int(p.replicas)) {
			out = append(out, finding(p.String(), "--server-count=%s, but there are %d replicas", count, p.replicas))
		}
		for _, a := range s.agents {
			switch counts := a.enabled("count-server-leases"); {
			case leases && !counts:
				out = append(out, finding(p.String(),
					"--enable-lease-controller is set, but agents lack --count-server-leases (%s)", a))
			case counts && !leases:
				out = append(out, finding(p.String(),
					"no --enable-lease-controller, but agents have --count-server-leases (%s)", a))
			case leases:
				for _, flag := range []string{"lease-namespace", "lease-label"} {
					if want, got := p.flag(flag), a.flag(flag); got != want {
						out = append(out, finding(p.String(), "--%s=%s, but agents have %s", flag, want, got))
					}
				}
			}
		}
	}
	return out
}
