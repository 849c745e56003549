// SPDX-License-Identifier: Apache-2.0

// Package permissions compares the permissions that RBAC grants a user with the user's requests in
// the audit log of kube-apiserver: no request may be forbidden, and no permission may be unused.
package permissions

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// KubeAPIServerArgs returns flags with which kube-apiserver logs every request to the file.
func KubeAPIServerArgs(dir, log string) ([]string, error) {
	policy := filepath.Join(dir, "policy.yaml")
	const text = "apiVersion: audit.k8s.io/v1\nkind: Policy\n" +
		"omitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write audit policy: %w", err)
	}
	return []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + log,
		// An informer needs no list if kube-apiserver streams existing objects (KEP-3157), and
		// both permissions if it does not.
		"--feature-gates=WatchList=false",
	}, nil
}

// Flatten returns one line for each permission of the rules: "VERB RESOURCE.GROUP", or "VERB
// RESOURCE.GROUP NAMESPACE/NAME" if a rule has names.
func Flatten(namespace string, rules []rbacv1.PolicyRule) ([]string, error) {
	var out []string
	for _, rule := range rules {
		if len(rule.NonResourceURLs) > 0 {
			return nil, fmt.Errorf("expected rules for resources, found %s", rule.String())
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					permission := verb + " " + resourceName(group, resource)
					if len(rule.ResourceNames) == 0 {
						out = append(out, permission)
					}
					for _, name := range rule.ResourceNames {
						out = append(out, permission+" "+namespace+"/"+name)
					}
				}
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

func resourceName(group, resource string) string {
	if group == "" {
		return resource
	}
	return resource + "." + group
}

// Requests returns the distinct requests of a user in an audit log, as "VERB RESOURCE.GROUP
// NAMESPACE/NAME", and those that were forbidden.
func Requests(log []byte, user string) (all, forbidden []string) {
	seen, denied := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(log)) {
		var event auditv1.Event
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			// The last line may be incomplete.
			continue
		}
		if event.User.Username != user {
			continue
		}
		request := describe(&event)
		seen[request] = true
		if event.Annotations["authorization.k8s.io/decision"] != "allow" || event.ResponseStatus != nil &&
			event.ResponseStatus.Code == http.StatusForbidden {
			denied[request] = true
		}
	}
	return slices.Sorted(maps.Keys(seen)), slices.Sorted(maps.Keys(denied))
}

func describe(event *auditv1.Event) string {
	ref := event.ObjectRef
	if ref == nil {
		return event.Verb + " " + event.RequestURI + " "
	}
	resource := ref.Resource
	if ref.Subresource != "" {
		resource += "/" + ref.Subresource
	}
	name := ref.Name
	if match := namedByField.FindStringSubmatch(event.RequestURI); name == "" && match != nil {
		name = match[1]
	}
	return event.Verb + " " + resourceName(ref.APIGroup, resource) + " " + ref.Namespace + "/" + name
}

// namedByField matches the name in a list of one object.
var namedByField = regexp.MustCompile(`fieldSelector=metadata\.name%3D([^&]+)`)

// Compare returns an error for each forbidden request and for each permission that was not used.
// never has the permissions that are expected to be unused, with the reason.
func Compare(user string, log []byte, granted []string, never map[string]string) []error {
	used, forbidden := Requests(log, user)
	if len(used) == 0 {
		return []error{fmt.Errorf("the audit log has no request of %s", user)}
	}
	var errs []error
	for _, request := range forbidden {
		errs = append(errs, fmt.Errorf("forbidden to %s: %s", user, request))
	}
	for _, permission := range granted {
		reason, expected := never[permission]
		switch wasUsed := slices.ContainsFunc(used, func(request string) bool { return covers(permission, request) }); {
		case !wasUsed && !expected:
			errs = append(errs, fmt.Errorf("%s has the permission %q and never uses it; its requests were\n  %s", user,
				permission, strings.Join(used, "\n  ")))
		case wasUsed && expected:
			errs = append(errs, fmt.Errorf("%s uses the permission %q, which the test expects not to be used: %s", user,
				permission, reason))
		}
	}
	for permission := range never {
		if !slices.Contains(granted, permission) {
			errs = append(errs, fmt.Errorf("%s has no permission %q, which the test makes an exception for", user, permission))
		}
	}
	return errs
}

// covers reports whether a permission covers a request. A permission without names covers any, and
// one without a namespace those in each.
func covers(permission, request string) bool {
	if what, name, named := strings.Cut(permission, " /"); named && name != "" {
		return strings.HasPrefix(request, what+" ") && strings.HasSuffix(request, "/"+name)
	}
	if strings.Count(permission, " ") == 2 {
		return request == permission
	}
	return strings.HasPrefix(request, permission+" ")
}
