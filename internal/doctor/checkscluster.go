// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
)

func checkWebhooks(f *Facts) []Finding {
	var out []Finding
	for _, w := range f.Webhooks {
		id, problem := "W01", w.Problem
		if problem == "" {
			id, problem = "W02", f.bundleProblem(w.CABundle)
		}
		if problem != "" {
			out = append(out, newFinding(id, w.object(), w.APIServices, map[string]string{
				"webhookKind": strings.ToLower(w.Kind), "webhook": w.Configuration,
			}, fmt.Sprintf("webhook %s has failurePolicy Fail, and %s", w.Name, problem)))
		}
	}
	return out
}

// bundleProblem returns why no certificate can be verified with a caBundle, or "".
func (f *Facts) bundleProblem(caBundle []byte) string {
	cas := certs.LenientBundle(caBundle)
	if len(cas) == 0 {
		return fmt.Sprintf("its caBundle has %d bytes and no certificate", len(caBundle))
	}
	if slices.ContainsFunc(cas, func(ca *x509.Certificate) bool { return validAt(ca, f.Now) }) {
		return ""
	}
	return "in its caBundle, " + validity(cas[0])
}

// checkPolicies compares the kinds of parameters with discovery.
func checkPolicies(f *Facts) []Finding {
	var out []Finding
	for _, p := range f.Policies {
		if f.Discovery != nil && f.kind(p.ParamVersion, p.ParamKind) == nil {
			out = append(out, newFinding("W03", "ValidatingAdmissionPolicy "+p.Name, p.APIServices,
				map[string]string{"policy": p.Name}, fmt.Sprintf("discovery has no kind %s of %s, and the failurePolicy is Fail",
					p.ParamKind, p.ParamVersion)))
		}
	}
	return out
}

func checkResources(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		if r := f.Responses[a.Name]; r.Status != http.StatusOK || r.Text != "" || len(r.Resources) > 0 {
			return nil
		}
		return []Finding{about(a, "D06", "", "GET /apis/"+groupVersionOf(a)+": 200 with no resources")}
	})
}

// checkVerbs reports resources with objects that the namespace controller, the garbage collector
// and quotas cannot process. A resource without get, such as a review, has no objects.
func checkVerbs(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		var out []Finding
		for _, r := range f.Responses[a.Name].Resources {
			missing := slices.DeleteFunc([]string{"list", "watch", "delete"}, func(verb string) bool {
				return slices.Contains(r.Verbs, verb)
			})
			if !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "create") && slices.Contains(r.Verbs, "get") &&
				len(missing) > 0 {
				out = append(out, about(a, "D11", "", fmt.Sprintf("%s has the verbs %s, and lacks %s", r.Name,
					strings.Join(r.Verbs, ", "), strings.Join(missing, ", "))))
			}
		}
		return out
	})
}

// checkDiscovery compares the aggregated discovery, which clients read, with the APIServices.
func checkDiscovery(f *Facts) []Finding {
	if f.Discovery == nil {
		return nil
	}
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		text := "GET /apis does not list " + groupVersionOf(a)
		for _, group := range f.Discovery.Items {
			for _, v := range group.Versions {
				if group.Name != a.Spec.Group || v.Version != a.Spec.Version {
					continue
				}
				if v.Freshness != apidiscoveryv2.DiscoveryFreshnessStale {
					return nil
				}
				text = "GET /apis lists " + groupVersionOf(a) + " with the freshness Stale"
			}
		}
		if isAvailable(a) && !f.settled(a) {
			return nil
		}
		return []Finding{about(a, "D07", "", text)}
	})
}

func checkOpenAPI(f *Facts) []Finding {
	if f.OpenAPI == nil {
		return nil
	}
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		document, listed := f.OpenAPI[a.Name]
		switch {
		case !f.settled(a):
			return nil
		case !listed:
			return []Finding{about(a, "O01", "", "GET /openapi/v3 does not list apis/"+groupVersionOf(a))}
		case document.Err != "":
			return []Finding{about(a, "O01", "", "GET /openapi/v3/apis/"+groupVersionOf(a)+": "+document.Err)}
		case len(document.Dangling) > 0:
			return []Finding{about(a, "O02", "", "missing schemas: "+strings.Join(document.Dangling, ", "))}
		}
		return nil
	})
}

// deletionConditions are the conditions of a namespace whose deletion does not go on.
var deletionConditions = []corev1.NamespaceConditionType{corev1.NamespaceDeletionDiscoveryFailure,
	corev1.NamespaceDeletionGVParsingFailure, corev1.NamespaceDeletionContentFailure}

func checkNamespaces(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		var out []Finding
		for _, n := range f.Terminating {
			for _, c := range n.Status.Conditions {
				if c.Status == corev1.ConditionTrue && slices.Contains(deletionConditions, c.Type) &&
					mentions(c.Message, groupVersionOf(a)) {
					out = append(out, about(a, "N01", "Namespace "+n.Name, c.Message, "stuck", n.Name))
				}
			}
		}
		return out
	})
}

// checkServerNamespaces reports the namespaces of servers that are being deleted.
func checkServerNamespaces(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		for _, n := range f.Terminating {
			if n.Name == backendOf(a).Namespace {
				return []Finding{about(a, "N02", "", fmt.Sprintf("the namespace %s is in Terminating since %s", n.Name,
					n.DeletionTimestamp.UTC().Format(time.RFC3339)))}
			}
		}
		return nil
	})
}

// quotaTime is longer than the interval at which kube-controller-manager looks for new resources
// and counts all quotas, which is five minutes.
const quotaTime = 6 * time.Minute

func checkQuotas(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		var out []Finding
		for _, q := range f.Quotas {
			var uncounted []string
			for _, resource := range q.Uncounted {
				if schema.ParseGroupResource(resource).Group == a.Spec.Group {
					uncounted = append(uncounted, resource)
				}
			}
			if len(uncounted) > 0 && f.Now.Sub(q.Created) > quotaTime && f.availableFor(a, quotaTime) {
				out = append(out, about(a, "N03", "ResourceQuota "+q.Namespace+"/"+q.Name, fmt.Sprintf(
					"the status has no number of %s", strings.Join(uncounted, ", ")), "quota", q.Name,
					"quotaNamespace", q.Namespace))
			}
		}
		return out
	})
}
