// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/catalogue"
)

// objectReasons are the reasons that kube-aggregator derives from objects which checkServices has
// read later.
var objectReasons = []string{"ServiceNotFound", "ServicePortError", "EndpointsNotFound", "MissingEndpoints"}

// checkResponses recognizes the error of the availability check or of the response.
func checkResponses(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		text, other := conditionText(a), ""
		if isAvailable(a) {
			r := f.Responses[a.Name]
			if r.Text == "" || r.Status == http.StatusForbidden { // of the user of the doctor
				return nil
			}
			text, other = fmt.Sprintf("GET /apis/%s: %d: %s", groupVersionOf(a), r.Status, r.Text), "K08"
		} else if b := f.Backends[backendOf(a)]; slices.Contains(objectReasons, available(a).Reason) &&
			(b.NotFound || b.SlicesRead || b.Service != nil && b.Service.Spec.Type == corev1.ServiceTypeExternalName) {
			return nil
		}
		findings := recognized(a, classify(catalogue.InMessage, text), text)
		if findings == nil && other != "" {
			return []Finding{about(a, other, "", text)}
		}
		return findings
	})
}

// recognized returns the finding of an ID to which a text of a server led. It returns none for a
// missing permission of which the text does not name the ServiceAccount.
func recognized(a apiregistrationv1.APIService, id, text string, more ...string) []Finding {
	if id == "" {
		return nil
	}
	object := ""
	switch layer := catalogue.Of(id).Layer; {
	case layer == "permissions":
		denied := deniedAccount.FindStringSubmatch(text)
		if denied == nil {
			return nil
		}
		object = Account{Namespace: denied[1], Name: denied[2]}.object()
		more = append(more, "accountNamespace", denied[1], "account", denied[2])
	case layer == "service" || strings.HasPrefix(id, "C"): // a certificate of the server
		object = serviceObject(backendOf(a))
	}
	return []Finding{about(a, id, object, text, more...)}
}

// deniedAccount matches the ServiceAccount in the message of a denied request, and deniedResource
// the resource and its group.
var (
	deniedAccount  = regexp.MustCompile(`User "system:serviceaccount:([^:"]+):([^:"]+)"`)
	deniedResource = regexp.MustCompile(`resource "([^"]+)" in API group "([^"]*)"`)
)

// checkLogs recognizes errors in the logs of servers whose API does not work.
func checkLogs(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		b := f.Backends[backendOf(a)]
		if b == nil || !f.broken(a) {
			return nil
		}
		var out []Finding
		denied := deniedResources(b.Logs)
		for _, line := range b.Logs {
			found := slices.DeleteFunc(recognized(a, classify(catalogue.InLog, line.Text), line.Text,
				"resources", denied), f.isGranted)
			for i := range found {
				found[i].onlyCause = true // a log also has lines of no consequence
				found[i].Evidence = []string{fmt.Sprintf("log of the container %s of the pod %s: %s", line.Container,
					line.Pod, line.Text)}
			}
			out = append(out, found...)
		}
		return out
	})
}

// isGranted reports whether the permission that a server lacked when it logged the finding is
// granted since.
func (f *Facts) isGranted(found Finding) bool {
	i := slices.IndexFunc(f.Accounts, func(a Account) bool { return a.object() == found.Object })
	return i >= 0 && f.Accounts[i].Reviewed &&
		slices.ContainsFunc(permissions, func(p Permission) bool { return p.ID == found.ID }) &&
		!slices.ContainsFunc(f.Accounts[i].Denied, func(p Permission) bool { return p.ID == found.ID })
}

// deniedResources returns the resources that a server may not list, for kubectl create clusterrole.
func deniedResources(lines []LogLine) string {
	var out []string
	for _, line := range lines {
		denied := deniedResource.FindStringSubmatch(line.Text)
		if classify(catalogue.InLog, line.Text) == "R04" && denied != nil {
			out = union(out, []string{schema.GroupResource{Group: denied[2], Resource: denied[1]}.String()})
		}
	}
	return strings.Join(out, ",")
}

// broken reports whether the API does not work for kube-apiserver, or for a user with permissions.
func (f *Facts) broken(a apiregistrationv1.APIService) bool {
	r := f.Responses[a.Name]
	return !isAvailable(a) || r.Text != "" && r.Status != http.StatusForbidden
}

// discoveryTimeout is the time within which kube-aggregator requires the response to discovery.
const discoveryTimeout = 5 * time.Second

func checkDuration(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		r := f.Responses[a.Name]
		if r.Status != http.StatusOK || r.Took < discoveryTimeout/2 {
			return nil
		}
		return []Finding{about(a, "D08", "", fmt.Sprintf("GET /apis/%s took %s, and the limit is %s", groupVersionOf(a),
			r.Took.Round(time.Millisecond), discoveryTimeout))}
	})
}

func checkServerClock(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		r := f.Responses[a.Name]
		if r.Skew == nil || (*r.Skew-f.Skew).Abs() <= maxSkew {
			return nil
		}
		return []Finding{about(a, "D09", serviceObject(backendOf(a)), fmt.Sprintf(
			"the header Date of the server and that of kube-apiserver differ by %s", (*r.Skew-f.Skew).Round(time.Second)))}
	})
}

// checkPermissions reports the permissions that a server lacks and is known to need.
func checkPermissions(f *Facts) []Finding {
	var out []Finding
	for _, account := range f.Accounts {
		for _, p := range account.Denied {
			if need := f.need(account, p); need != "" {
				out = append(out, newFinding(p.ID, account.object(), account.APIServices,
					map[string]string{"account": account.Name, "accountNamespace": account.Namespace},
					fmt.Sprintf("a SubjectAccessReview denies it to %s; %s", p, need)))
			}
		}
	}
	return out
}

// need returns the evidence that a server of the account needs the permission, or "" without any.
// A server may authenticate and authorize requests by itself, and then it needs none of them.
func (f *Facts) need(account Account, p Permission) string {
	if p.ID == "R01" && len(account.ElsewhereBound) > 0 {
		return "the RoleBinding " + strings.Join(account.ElsewhereBound, ", ") + " is in the wrong namespace"
	}
	for _, a := range f.APIServices {
		if !slices.Contains(account.APIServices, a.Name) {
			continue
		}
		review := f.Responses[a.Name].Review
		if classify(catalogue.InMessage, review) == "R03" && mentions(review, p.resource()) {
			return "the server reports: " + review
		}
		if p.ID == "R01" && classify(catalogue.InMessage, conditionText(a)) == "D03" {
			return conditionText(a)
		}
	}
	return ""
}

// Skip is a check that led to no result.
type Skip struct {
	Layer  string `json:"layer"`
	ID     string `json:"id"` // of the finding that the check did not rule out
	Object string `json:"object"`
	Reason string `json:"reason"`
}

// skips returns the permissions that a server lacks, if nothing shows that it needs them.
func (f *Facts) skips(findings []Finding) []Skip {
	out := []Skip{}
	for _, account := range f.Accounts {
		for _, p := range account.Denied {
			if !slices.ContainsFunc(findings, func(f Finding) bool { return f.ID == p.ID && f.Object == account.object() }) {
				out = append(out, Skip{catalogue.Of(p.ID).Layer, p.ID, account.object(),
					"it may not " + p.String() + ", but nothing shows that its server needs to"})
			}
		}
	}
	return out
}

// checkReviews reports the permissions that a server of this kit lacks by its own account.
func checkReviews(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		review := f.Responses[a.Name].Review
		if !isAvailable(a) || classify(catalogue.InMessage, review) != "R03" {
			return nil
		}
		return []Finding{about(a, "R03", serviceObject(backendOf(a)), review)}
	})
}
