// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
)

func checkAvailable(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		if isAvailable(a) {
			return nil
		}
		return []Finding{about(a, unavailable, "", conditionText(a))}
	})
}

func conditionText(a apiregistrationv1.APIService) string {
	c := available(a)
	if c.Type == "" {
		return "kube-apiserver has not set the condition Available"
	}
	return fmt.Sprintf("condition Available is %s (%s): %s", c.Status, c.Reason, c.Message)
}

func checkCRDs(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		var out []Finding
		for _, crd := range f.CRDs {
			if crd.Group == a.Spec.Group && slices.Contains(crd.Versions, a.Spec.Version) {
				out = append(out, about(a, "A02", "", fmt.Sprintf("CustomResourceDefinition %s serves %s", crd.Name,
					groupVersionOf(a)), "crd", crd.Name))
			}
		}
		return out
	})
}

// checkShadows compares the resources of an API with those of other groups, which clients prefer
// by the priority of the group.
func checkShadows(f *Facts) []Finding {
	priorities := map[string]int32{}
	for _, a := range f.All {
		priorities[a.Spec.Group] = max(priorities[a.Spec.Group], a.Spec.GroupPriorityMinimum)
	}
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		var out []Finding
		for _, resource := range f.Responses[a.Name].Resources {
			for _, other := range f.groupsWith(resource.Name) {
				if other != a.Spec.Group && priorities[other] < priorities[a.Spec.Group] {
					out = append(out, about(a, "A03", "", fmt.Sprintf(
						"%s of the group %q has the priority %d, and that of %q has %d", resource.Name, a.Spec.Group,
						priorities[a.Spec.Group], other, priorities[other]), "resource", resource.Name))
				}
			}
		}
		return out
	})
}

// groupsWith returns the groups whose discovery lists the resource.
func (f *Facts) groupsWith(resource string) []string {
	var out []string
	if f.Discovery == nil {
		return nil
	}
	for _, group := range f.Discovery.Items {
		if slices.ContainsFunc(group.Versions, func(v apidiscoveryv2.APIVersionDiscovery) bool {
			return slices.ContainsFunc(v.Resources, func(r apidiscoveryv2.APIResourceDiscovery) bool {
				return r.Resource == resource
			})
		}) {
			out = append(out, group.Name)
		}
	}
	return out
}

// checkVersions reports a preferred version that is less stable than another version of its group.
func checkVersions(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		var best apiregistrationv1.APIService
		for _, other := range f.All {
			switch {
			case other.Spec.Group != a.Spec.Group || other.Name == a.Name:
			case other.Spec.VersionPriority >= a.Spec.VersionPriority:
				return nil
			case stability(other.Spec.Version) > max(stability(a.Spec.Version), stability(best.Spec.Version)):
				best = other
			}
		}
		if best.Name == "" {
			return nil
		}
		return []Finding{about(a, "A04", "", fmt.Sprintf("the versionPriority of %s is %d, that of %s is %d", a.Name,
			a.Spec.VersionPriority, best.Name, best.Spec.VersionPriority), "stable", best.Name,
			"priority", strconv.Itoa(int(a.Spec.VersionPriority)+1))}
	})
}

// stability orders versions: alpha, beta, stable.
func stability(version string) int {
	switch {
	case version == "" || strings.Contains(version, "alpha"):
		return 0
	case strings.Contains(version, "beta"):
		return 1
	}
	return 2
}

// checkOwners reports owners in a namespace, which an object without a namespace cannot have.
func checkOwners(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		var out []Finding
		for _, owner := range a.OwnerReferences {
			if r := f.kind(owner.APIVersion, owner.Kind); r != nil && r.Scope == apidiscoveryv2.ScopeNamespace {
				out = append(out, about(a, "A05", "", fmt.Sprintf("its owner is %s %s %s", owner.APIVersion, owner.Kind,
					owner.Name)))
			}
		}
		return out
	})
}

// kind returns the resource of a kind in discovery, or nil.
func (f *Facts) kind(apiVersion, kind string) *apidiscoveryv2.APIResourceDiscovery {
	if f.Discovery == nil {
		return nil
	}
	for _, group := range f.Discovery.Items {
		for _, v := range group.Versions {
			if (schema.GroupVersion{Group: group.Name, Version: v.Version}).String() != apiVersion {
				continue
			}
			for i, r := range v.Resources {
				if r.ResponseKind != nil && r.ResponseKind.Kind == kind {
					return &v.Resources[i]
				}
			}
		}
	}
	return nil
}

func checkCABundles(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		cas := certs.LenientBundle(a.Spec.CABundle)
		switch {
		case a.Spec.InsecureSkipTLSVerify:
			return []Finding{about(a, "K01", "", "spec.insecureSkipTLSVerify is true")}
		case len(cas) == 0:
			return []Finding{about(a, "K02", "", fmt.Sprintf("spec.caBundle has %d bytes and no certificate",
				len(a.Spec.CABundle)))}
		}
		var invalid []string
		soon := true
		for _, ca := range cas {
			if !validAt(ca, f.Now) {
				invalid = append(invalid, validity(ca))
			}
			soon = soon && verify.Due(ca, f.Now, 0)
		}
		switch {
		case len(invalid) == len(cas):
			return []Finding{about(a, "K04", "", strings.Join(invalid, "; "))}
		case len(invalid) > 0: // as in a rotation that has not removed it yet
			finding := about(a, "K04", "", strings.Join(invalid, "; "))
			finding.Severity = catalogue.Warning
			return []Finding{finding}
		case soon:
			return []Finding{about(a, "K15", "", validity(cas[0]))}
		}
		return nil
	})
}

// injectFrom and injectFromSecret are annotations of an APIService whose caBundle cert-manager writes:
// the Certificate or the Secret that has the CA.
const (
	injectFrom       = "cert-manager.io/inject-ca-from"
	injectFromSecret = "cert-manager.io/inject-ca-from-secret" //nolint:gosec // a name
)

// checkInjection recognizes a wrong caBundle that cert-manager writes, and would write again.
func checkInjection(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		if isAvailable(a) { // an expired CA of a rotation does no harm
			return nil
		}
		for annotation, resource := range map[string]string{injectFrom: "certificate", injectFromSecret: "secret"} {
			namespace, name, found := strings.Cut(a.Annotations[annotation], "/")
			if !found {
				continue
			}
			finding := about(a, "K16", "", fmt.Sprintf("the annotation %s is %s/%s", annotation, namespace, name),
				"resource", resource, "holder", name, "holderNamespace", namespace)
			finding.onlyCause = true
			return []Finding{finding}
		}
		return nil
	})
}
