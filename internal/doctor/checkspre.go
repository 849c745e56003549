// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// requiredResources are those that a server of the library k8s.io/apiserver reads or creates in the
// cluster, and the APIService that registers it. Mutating policies are not among them: version 1.35
// does not serve them as v1, and a server can do without.
var requiredResources = map[schema.GroupVersion][]string{
	{Group: "apiregistration.k8s.io", Version: "v1"}: {"apiservices"},
	{Group: "authentication.k8s.io", Version: "v1"}:  {"tokenreviews"},
	{Group: "authorization.k8s.io", Version: "v1"}:   {"subjectaccessreviews"},
	{Group: "discovery.k8s.io", Version: "v1"}:       {"endpointslices"},
	{Group: "admissionregistration.k8s.io", Version: "v1"}: {
		"mutatingwebhookconfigurations",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations",
	},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"}: {"flowschemas", "prioritylevelconfigurations"},
}

// checkServed compares the required APIs with discovery.
func checkServed(f *Facts) []Finding {
	if !f.Pre || f.Discovery == nil {
		return nil
	}
	var out []Finding
	for gv, resources := range requiredResources {
		for _, resource := range resources {
			if !f.serves(gv, resource) {
				out = append(out, newFinding("I01", "API "+gv.String(), nil, nil, "discovery has no "+resource))
			}
		}
	}
	return out
}

func (f *Facts) serves(gv schema.GroupVersion, resource string) bool {
	return slices.ContainsFunc(f.Discovery.Items, func(group apidiscoveryv2.APIGroupDiscovery) bool {
		return group.Name == gv.Group && slices.ContainsFunc(group.Versions, func(v apidiscoveryv2.APIVersionDiscovery) bool {
			return v.Version == gv.Version && slices.ContainsFunc(v.Resources,
				func(r apidiscoveryv2.APIResourceDiscovery) bool { return r.Resource == resource })
		})
	})
}

func checkInstaller(f *Facts) []Finding {
	var out []Finding
	for _, p := range f.Denied {
		out = append(out, newFinding(p.ID, "the user of the kubeconfig", nil, nil,
			"a SelfSubjectAccessReview denies it to "+p.String()))
	}
	return out
}

func checkRoles(f *Facts) []Finding {
	var out []Finding
	for _, role := range f.MissingRoles {
		out = append(out, newFinding("I03", role, nil, nil, role+" is not found"))
	}
	return out
}
