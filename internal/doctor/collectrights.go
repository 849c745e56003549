// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/frontproxy"
)

// permissions are those that a server with delegated authentication and authorization needs.
var permissions = []Permission{
	{ID: "R01", Verb: "get", Resource: "configmaps", Namespace: frontproxy.Namespace, Name: frontproxy.ConfigMapName},
	{ID: "R02", Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"},
	{ID: "R02", Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
}

// The roles that kube-apiserver creates for servers: readerRole, in kube-system, for the trusted
// CA, and delegatorRole for reviews.
const (
	readerRole    = "extension-apiserver-authentication-reader"
	delegatorRole = "system:auth-delegator"
)

// accountReads returns a function for each ServiceAccount of the servers' pods.
func (c *collector) accountReads() []func(context.Context) {
	var out []func(context.Context)
	for i := range c.findAccounts() {
		out = append(out, func(ctx context.Context) { c.readAccount(ctx, &c.facts.Accounts[i]) })
	}
	return out
}

// findAccounts sets Accounts to the ServiceAccounts of the pods behind each Service. A pod with a
// kubeconfig for its reviews has another identity.
func (c *collector) findAccounts() []Account {
	f := c.facts
	for _, a := range f.APIServices {
		for _, pod := range f.Backends[backendOf(a)].Pods {
			if pod.DeletionTimestamp != nil || hasKubeconfig(pod) {
				continue
			}
			i := slices.IndexFunc(f.Accounts, func(have Account) bool {
				return have.Namespace == pod.Namespace && have.Name == pod.Spec.ServiceAccountName
			})
			if i < 0 {
				i = len(f.Accounts)
				f.Accounts = append(f.Accounts, Account{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName})
			}
			f.Accounts[i].APIServices = union(f.Accounts[i].APIServices, []string{a.Name})
		}
	}
	return f.Accounts
}

func hasKubeconfig(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(container corev1.Container) bool {
		return slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == "KUBECONFIG" }) ||
			slices.ContainsFunc(slices.Concat(container.Command, container.Args), func(arg string) bool {
				return strings.Contains(arg, "kubeconfig")
			})
	})
}

// readAccount reviews the permissions of a ServiceAccount.
func (c *collector) readAccount(ctx context.Context, a *Account) {
	for _, p := range permissions {
		review, err := c.core.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + a.Namespace + ":" + a.Name,
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + a.Namespace,
					"system:authenticated"},
				ResourceAttributes: p.attributes(),
			}}, metav1.CreateOptions{})
		if c.failed("permissions", "create subjectaccessreviews.authorization.k8s.io", err) {
			return
		}
		if !review.Status.Allowed {
			a.Denied = append(a.Denied, p)
		}
	}
	a.Reviewed = true
	if slices.ContainsFunc(a.Denied, func(p Permission) bool { return p.ID == "R01" }) {
		c.readElsewhereBound(ctx, a)
	}
}

// readElsewhereBound looks for a RoleBinding in the namespace of the ServiceAccount, where tools
// that rewrite namespaces move it.
func (c *collector) readElsewhereBound(ctx context.Context, a *Account) {
	list, err := c.core.RbacV1().RoleBindings(a.Namespace).List(ctx, metav1.ListOptions{})
	if c.failed("permissions", "list rolebindings in the namespace "+a.Namespace, err) {
		return
	}
	for _, binding := range list.Items {
		if a.Namespace != frontproxy.Namespace && binding.RoleRef.Name == readerRole {
			a.ElsewhereBound = append(a.ElsewhereBound, binding.Namespace+"/"+binding.Name)
		}
	}
}

// readWebhooks reads the webhooks whose rules match the group of an APIService, and their
// Services.
func (c *collector) readWebhooks(ctx context.Context) {
	admission := c.core.AdmissionregistrationV1()
	validating, err := admission.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if !c.failed("admission", "list validatingwebhookconfigurations", err) {
		for _, configuration := range validating.Items {
			for _, w := range configuration.Webhooks {
				c.readWebhook(ctx, Webhook{Kind: "ValidatingWebhookConfiguration", Configuration: configuration.Name,
					Name: w.Name}, w.ClientConfig, w.FailurePolicy, w.Rules)
			}
		}
	}
	mutating, err := admission.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if !c.failed("admission", "list mutatingwebhookconfigurations", err) {
		for _, configuration := range mutating.Items {
			for _, w := range configuration.Webhooks {
				c.readWebhook(ctx, Webhook{Kind: "MutatingWebhookConfiguration", Configuration: configuration.Name,
					Name: w.Name}, w.ClientConfig, w.FailurePolicy, w.Rules)
			}
		}
	}
}

func (c *collector) readWebhook(ctx context.Context, w Webhook, client admissionregistrationv1.WebhookClientConfig,
	policy *admissionregistrationv1.FailurePolicyType, rules []admissionregistrationv1.RuleWithOperations) {
	if client.Service == nil ||
		ptr.Deref(policy, admissionregistrationv1.Fail) != admissionregistrationv1.Fail {
		return
	}
	if w.APIServices = c.matched(rules); len(w.APIServices) == 0 {
		return
	}
	w.Service = certs.Service{Name: client.Service.Name, Namespace: client.Service.Namespace}
	w.CABundle = client.CABundle
	b := c.readBackend(ctx, "admission", w.Service)
	port := ptr.Deref(client.Service.Port, 443)
	switch {
	case b.NotFound:
		w.Problem = serviceObject(w.Service) + " does not exist"
	case b.Service == nil || b.Service.Spec.Type == corev1.ServiceTypeExternalName:
	case !slices.ContainsFunc(b.Service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port }):
		w.Problem = fmt.Sprintf("%s does not have the port %d", serviceObject(w.Service), port)
	case b.SlicesRead && !hasReadyEndpoint(b, ""):
		w.Problem = serviceObject(w.Service) + " has no ready endpoints"
	}
	c.set(func(f *Facts) { f.Webhooks = append(f.Webhooks, w) })
}

// matched returns the names of the APIServices that a rule matches.
func (c *collector) matched(rules []admissionregistrationv1.RuleWithOperations) []string {
	var out []string
	for _, a := range c.facts.APIServices {
		if slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
			return matches(r.APIGroups, a.Spec.Group) && matches(r.APIVersions, a.Spec.Version)
		}) {
			out = append(out, a.Name)
		}
	}
	return out
}

// readPolicies reads the policies with parameters whose rules match the group of an APIService.
func (c *collector) readPolicies(ctx context.Context) {
	list, err := c.core.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if c.failed("admission", "list validatingadmissionpolicies", err) {
		return
	}
	for _, p := range list.Items {
		if p.Spec.ParamKind == nil || p.Spec.MatchConstraints == nil ||
			ptr.Deref(p.Spec.FailurePolicy, admissionregistrationv1.Fail) != admissionregistrationv1.Fail {
			continue
		}
		var rules []admissionregistrationv1.RuleWithOperations
		for _, rule := range p.Spec.MatchConstraints.ResourceRules {
			rules = append(rules, rule.RuleWithOperations)
		}
		if matched := c.matched(rules); len(matched) > 0 {
			c.set(func(f *Facts) {
				f.Policies = append(f.Policies, Policy{Name: p.Name, ParamVersion: p.Spec.ParamKind.APIVersion,
					ParamKind: p.Spec.ParamKind.Kind, APIServices: matched})
			})
		}
	}
}

// countPrefix precedes the resource in the limit of a quota on a number of objects.
const countPrefix = "count/"

// readQuotas reads the quotas that limit a resource of which they have no number.
func (c *collector) readQuotas(ctx context.Context) {
	list, err := c.core.CoreV1().ResourceQuotas(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if c.failed("effects", "list resourcequotas", err) {
		return
	}
	for _, q := range list.Items {
		quota := Quota{Namespace: q.Namespace, Name: q.Name, Created: q.CreationTimestamp.Time}
		for name := range q.Spec.Hard {
			resource, counted := strings.CutPrefix(string(name), countPrefix)
			if _, used := q.Status.Used[name]; counted && !used {
				quota.Uncounted = append(quota.Uncounted, resource)
			}
		}
		if len(quota.Uncounted) > 0 {
			slices.Sort(quota.Uncounted)
			c.set(func(f *Facts) { f.Quotas = append(f.Quotas, quota) })
		}
	}
}

func matches(patterns []string, value string) bool {
	return slices.Contains(patterns, value) || slices.Contains(patterns, "*")
}

func (w Webhook) object() string { return fmt.Sprintf("%s %s", w.Kind, w.Configuration) }
