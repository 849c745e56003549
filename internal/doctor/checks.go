// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/catalogue"
)

// unavailable is the ID of the finding about a condition Available that is not True. It is a
// symptom unless nothing explains it.
const unavailable = "A01"

// checks find problems in facts. They are pure functions, in the order of the layers.
var checks = []func(*Facts) []Finding{
	checkClient, checkClock, checkTrust, checkHeaders, checkProxyCAs, checkProxyCertificate,
	checkAvailable, checkCRDs, checkShadows, checkVersions, checkOwners,
	checkServices, checkAttempts, checkEgress, checkCABundles, checkInjection, checkResponses, checkLogs, checkDuration,
	checkServerClock, checkPermissions, checkReviews, checkWebhooks, checkPolicies,
	checkResources, checkVerbs, checkDiscovery, checkOpenAPI, checkNamespaces, checkServerNamespaces, checkQuotas,
	checkServed, checkInstaller, checkRoles,
}

// Check returns the findings, those of the same ID and object merged.
func (f *Facts) Check() []Finding {
	var all []Finding
	for _, check := range checks {
		all = append(all, check(f)...)
	}
	all = merge(all)
	return slices.DeleteFunc(slices.Clone(all), func(f Finding) bool {
		return f.onlyCause && !slices.ContainsFunc(all, func(other Finding) bool { return explains(f, other) })
	})
}

// perAPIService returns the findings about each APIService.
func perAPIService(f *Facts, check func(apiregistrationv1.APIService) []Finding) []Finding {
	var out []Finding
	for _, a := range f.APIServices {
		out = append(out, check(a)...)
	}
	return out
}

// checkClient recognizes why nothing could be read.
func checkClient(f *Facts) []Finding {
	id := classify(catalogue.InClient, f.ClientError)
	if id == "" {
		return nil
	}
	evidence := []string{f.ClientError}
	if f.Proxy != "" {
		evidence = append(evidence, "the proxy is "+f.Proxy)
	}
	host := f.Host
	if u, err := url.Parse(f.Host); err == nil && u.Host != "" {
		host = u.Hostname()
	}
	return []Finding{newFinding(id, "kube-apiserver "+f.Host, nil, map[string]string{"host": host}, evidence...)}
}

// maxSkew is the greatest difference of two clocks that is no finding. It is less than the time by
// which CAs usually backdate certificates, and more than a slow response takes.
const maxSkew = 5 * time.Minute

func checkClock(f *Facts) []Finding {
	if f.Skew.Abs() <= maxSkew {
		return nil
	}
	return []Finding{newFinding("Q05", "this machine", nil, nil, fmt.Sprintf(
		"the clock of kube-apiserver differs from that of this machine by %s", f.Skew.Round(time.Second)))}
}

// mentions reports whether the text contains the name, and not only as a part of a longer one.
func mentions(text, name string) bool {
	return regexp.MustCompile(`(^|[^\w.-])` + regexp.QuoteMeta(name) + `(\W|$)`).MatchString(text)
}
