// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"
)

// Level defines which servers must pass a check.
type Level string

const (
	// Required is behavior on which clients such as kubectl, informers and the garbage collector
	// rely.
	Required Level = "required"
	// Recommended is behavior that the API conventions request.
	Recommended Level = "recommended"
	// Optional is a feature that a server may lack.
	Optional Level = "optional"
)

// Addresses of the documents that describe behavior. A check names one of them, or a KEP.
const (
	concepts    = "https://kubernetes.io/docs/reference/using-api/api-concepts/"
	conventions = "https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md"
	names       = "https://kubernetes.io/docs/concepts/overview/working-with-objects/names/"
	applying    = "https://kubernetes.io/docs/reference/using-api/server-side-apply/"
	deleting    = "https://kubernetes.io/docs/concepts/architecture/garbage-collection/"
	finalizing  = "https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/"
	selecting   = "https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/"
	authorizing = "https://kubernetes.io/docs/reference/access-authn-authz/authorization/"
	policies    = "https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/"
	webhooking  = "https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/"
	auditing    = "https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/"
	measuring   = "https://kubernetes.io/docs/reference/instrumentation/metrics/"
	commanding  = "https://kubernetes.io/docs/reference/kubectl/"
	openapis    = "https://kubernetes.io/docs/concepts/overview/kubernetes-api/"
)

// kep returns the address of an enhancement proposal of SIG API Machinery.
func kep(name string) string {
	return "https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/" + name
}

// Check is a check of one behavior.
type Check struct {
	// ID has the form AREA/NAME and does not change.
	ID string
	// Level defines which servers must pass the check.
	Level Level
	// Source is the address of the text that requires the behavior.
	Source string
	// Text describes the expected behavior.
	Text string
	// needs are properties that the resource must have, such as a verb. Otherwise the check is
	// skipped.
	needs []need
	run   func(*session)
}

// Area returns the part of the ID before the slash.
func (c Check) Area() string { area, _, _ := strings.Cut(c.ID, "/"); return area }

// Checks returns all checks, ordered by area.
func Checks() []Check {
	return slices.Concat(nameChecks, createChecks, updateChecks, patchChecks, applyChecks, dryRunChecks,
		fieldValidationChecks, statusChecks, scaleChecks, actionChecks,
		deleteChecks, collectionChecks, getChecks, listChecks, selectorChecks, pageChecks, watchChecks,
		watchListChecks, representationChecks,
		discoveryChecks, openAPIChecks, versionChecks, authorizationChecks, admissionChecks, webhookChecks, limitChecks,
		kubectlChecks, healthChecks,
		existingChecks, reviewChecks, metricChecks, auditChecks, leakChecks)
}

// need is a requirement of a check on the resource or the target. It returns "" if the
// requirement is met, and otherwise the reason.
type need func(*discovered, *Target) (reason string)

// verbs requires verbs of the resource. With the verb create, it also requires that objects like
// the sample can be created.
func verbs(names ...string) need {
	named := offers(names...)
	return func(f *discovered, t *Target) string {
		if reason := named(f, t); reason != "" || !slices.Contains(names, "create") {
			return reason
		}
		return f.uncreated
	}
}

// offers requires verbs of the resource. The verb create also requires get and delete, because
// created objects are read, and deleted at the end. Reviews have neither.
func offers(names ...string) need {
	if slices.Contains(names, "create") {
		names = append(names, "get", "delete")
	}
	return func(f *discovered, _ *Target) string {
		for _, name := range names {
			if !slices.Contains(f.resource.Verbs, name) {
				return "the resource has no verb " + name
			}
		}
		return ""
	}
}

// subresource requires a subresource.
func subresource(name string) need {
	return func(f *discovered, _ *Target) string {
		if _, ok := f.subresources[name]; !ok {
			return "the resource has no subresource " + name
		}
		return ""
	}
}

func namespaced(f *discovered, _ *Target) string {
	if !f.resource.Namespaced {
		return "the resource is not namespaced"
	}
	return ""
}

// confined is the requirement of checks that delete a collection.
func confined(f *discovered, t *Target) string {
	if !f.resource.Namespaced && !t.AllowDisruptive {
		return "the check deletes a cluster-scoped collection, and a server that ignores selectors would delete other " +
			"objects; the target has no AllowDisruptive"
	}
	return ""
}

func aChange(_ *discovered, t *Target) string {
	if len(t.Change) == 0 {
		return "the target has no Change"
	}
	return ""
}

func anInvalidChange(_ *discovered, t *Target) string {
	if len(t.Invalid) == 0 {
		return "the target has no Invalid"
	}
	return ""
}

func aStatus(_ *discovered, t *Target) string {
	if len(t.Status) == 0 {
		return "the target has no Status"
	}
	return ""
}

func aServer(_ *discovered, t *Target) string {
	if t.Server == nil {
		return "the target has no Server"
	}
	return ""
}

func anAuditLog(_ *discovered, t *Target) string {
	if t.AuditLog == "" {
		return "the target has no AuditLog"
	}
	return ""
}

func aWebhookAddress(_ *discovered, t *Target) string {
	if t.WebhookAddress == "" {
		return "the target has no WebhookAddress"
	}
	return ""
}

func aKubectl(_ *discovered, t *Target) string {
	if len(t.Kubectl) == 0 {
		return "the target has no Kubectl"
	}
	return ""
}

func otherVersions(f *discovered, _ *Target) string {
	if len(f.otherVersions) == 0 {
		return "the resource has only one version"
	}
	return ""
}
