// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"strconv"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	helper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/utils/ptr"

	"example.com/extension-apiserver/internal/certs"
)

// Facts contains all data for the checks, read once. The checks send no requests. A field that
// could not be read has its zero value, and Unread has the reason.
type Facts struct {
	// Now is the time by the clock of kube-apiserver, if it is known. Skew is how much that clock is
	// ahead of this machine's.
	Now  time.Time
	Skew time.Duration
	// Host is the URL of kube-apiserver, and Proxy that of the proxy through which this machine
	// connects to it, if any.
	Host, Proxy string
	// ClientError is the error of the request for the APIServices, without which nothing else is read.
	ClientError string
	// Kubernetes is the version of kube-apiserver.
	Kubernetes string
	// Flags are those of kube-apiserver; nil if they were not read.
	Flags map[string]string
	// Pre means that the facts for an installation were read: what the user may not do, and the roles
	// that do not exist.
	Pre          bool
	Denied       []Permission
	MissingRoles []string
	// APIServices are those to diagnose, all with a Service. All are those of the cluster.
	APIServices, All []apiregistrationv1.APIService
	Backends         map[certs.Service]*Backend
	// EgressFailures is how many connections to its konnectivity server kube-apiserver failed to open
	// within egressInterval. It is read only if an APIService is not available because of a timeout.
	EgressFailures int
	// Attempts are connections from the pod network to the servers of APIs that do not work.
	Attempts  []Attempt
	Responses map[string]Response // by APIService
	// Trust is the ConfigMap with the trusted front-proxy CA.
	Trust         *corev1.ConfigMap
	TrustNotFound bool
	Accounts      []Account
	CRDs          []CRD
	// Terminating are the namespaces that are being deleted.
	Terminating []corev1.Namespace
	Webhooks    []Webhook
	Policies    []Policy
	Quotas      []Quota
	// Discovery is the aggregated discovery of kube-apiserver, also of the group ""; nil if it was not
	// read.
	Discovery *apidiscoveryv2.APIGroupDiscoveryList
	// OpenAPI contains the OpenAPI v3 documents by APIService; nil if the index was not read. An
	// APIService that the index does not list is not a key.
	OpenAPI map[string]Document
	Unread  []Unread
	// Requests is the number of requests to kube-apiserver.
	Requests int64
}

// Backend is the Service of APIServices. A nil Service does not exist or was not read.
type Backend struct {
	Service  *corev1.Service
	NotFound bool
	Slices   []discoveryv1.EndpointSlice
	// SlicesRead and PodsRead report whether Slices and Pods were read. Pods are those of the
	// Service's selector.
	SlicesRead, PodsRead bool
	Pods                 []corev1.Pod
	// Logs are the last lines in the logs of the pods that lead to a finding, one for each.
	Logs []LogLine
}

// LogLine is a line in the log of a container.
type LogLine struct{ Pod, Container, Text string }

// Response is the response to a GET of a group and version through kube-apiserver.
type Response struct {
	Status    int    // HTTP status; 0 without a response
	Text      string // the body if the status is an error, or the error of the request
	Resources []metav1.APIResource
	Took      time.Duration
	// Skew is how much the clock of the server is ahead of this machine's; nil if it is unknown.
	Skew *time.Duration
	// Review is the error message of a created IdentityReview, if the API serves this kind.
	Review string
}

// Account is the ServiceAccount of a server, with its permissions.
type Account struct {
	Namespace, Name string
	APIServices     []string
	// Reviewed means that Denied is complete.
	Reviewed bool
	// Denied are the permissions that it lacks.
	Denied []Permission
	// ElsewhereBound are RoleBindings for the trusted front-proxy CA that are not in kube-system.
	ElsewhereBound []string
}

// Permission is a permission of a server's ServiceAccount or of the user, with the ID of the finding
// if it is missing.
type Permission struct {
	ID, Verb, Group, Resource, Namespace, Name string
}

func (a Account) object() string { return "ServiceAccount " + a.Namespace + "/" + a.Name }

// resource returns the resource with its group, as in error messages.
func (p Permission) resource() string {
	return schema.GroupResource{Group: p.Group, Resource: p.Resource}.String()
}

func (p Permission) attributes() *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{Verb: p.Verb, Group: p.Group, Resource: p.Resource,
		Namespace: p.Namespace, Name: p.Name}
}

func (p Permission) String() string {
	text := p.Verb + " " + p.resource()
	if p.Name != "" {
		text += " " + p.Name
	}
	if p.Namespace != "" {
		text += " in the namespace " + p.Namespace
	}
	return text
}

// CRD is a CustomResourceDefinition of the group of an APIService, with its served versions.
type CRD struct {
	Name, Group string
	Versions    []string
}

// Webhook is a webhook whose rules match the group of an APIService, that rejects requests when it
// fails, and whose server is a Service.
type Webhook struct {
	Kind, Configuration, Name string
	Service                   certs.Service
	APIServices               []string
	CABundle                  []byte
	// Problem is empty if the Service has the port and a ready endpoint.
	Problem string
}

// Policy is a ValidatingAdmissionPolicy with parameters whose rules match the group of an
// APIService, and that rejects requests when it fails.
type Policy struct {
	Name                    string
	ParamVersion, ParamKind string
	APIServices             []string
}

// Quota is a ResourceQuota that limits the number of objects of an API.
type Quota struct {
	Namespace, Name string
	Created         time.Time
	// Uncounted are the limited resources, each with its group, of which the status has no number.
	Uncounted []string
}

// Document is an OpenAPI v3 document. Dangling are the references to schemas that it does not
// contain. Err is the error of its request.
type Document struct {
	Dangling []string
	Err      string
}

// Unread is a fact that could not be read.
type Unread struct {
	Layer  string `json:"layer"`
	What   string `json:"what"`   // such as "list pods in the namespace x"
	Reason string `json:"reason"` // the error
	// Forbidden means that the user lacks the permission.
	Forbidden bool `json:"forbidden"`
}

func backendOf(a apiregistrationv1.APIService) certs.Service {
	return certs.Service{Name: a.Spec.Service.Name, Namespace: a.Spec.Service.Namespace}
}

func portOf(a apiregistrationv1.APIService) int32 { return ptr.Deref(a.Spec.Service.Port, 443) }

func groupVersionOf(a apiregistrationv1.APIService) string {
	return a.Spec.Group + "/" + a.Spec.Version
}

// available returns the condition Available, with status Unknown if it does not exist.
func available(a apiregistrationv1.APIService) apiregistrationv1.APIServiceCondition {
	if c := helper.GetAPIServiceConditionByType(&a, apiregistrationv1.Available); c != nil {
		return *c
	}
	return apiregistrationv1.APIServiceCondition{Status: apiregistrationv1.ConditionUnknown}
}

func isAvailable(a apiregistrationv1.APIService) bool {
	return available(a).Status == apiregistrationv1.ConditionTrue
}

// settleTime is longer than the interval at which kube-apiserver reads the discovery and the
// OpenAPI documents of servers, which is a minute.
const settleTime = 75 * time.Second

// settled reports whether the APIService has been available for so long that kube-apiserver must
// have read its discovery and OpenAPI.
func (f *Facts) settled(a apiregistrationv1.APIService) bool { return f.availableFor(a, settleTime) }

func (f *Facts) availableFor(a apiregistrationv1.APIService, d time.Duration) bool {
	return isAvailable(a) && f.Now.Sub(available(a).LastTransitionTime.Time) > d
}

// about returns a finding about an APIService. The parameters are those of its Service, and more
// as names and values in turn.
func about(a apiregistrationv1.APIService, id, object, evidence string, more ...string) Finding {
	s := backendOf(a)
	parameters := map[string]string{
		"apiservice": a.Name, "group": a.Spec.Group, "version": a.Spec.Version, "service": s.Name,
		"namespace": s.Namespace, "port": strconv.Itoa(int(portOf(a))), "serverName": s.ServerName(),
	}
	for i := 0; i+1 < len(more); i += 2 {
		parameters[more[i]] = more[i+1]
	}
	return newFinding(id, cmp.Or(object, "APIService "+a.Name), []string{a.Name}, parameters, evidence)
}

func serviceObject(s certs.Service) string { return "Service " + s.Namespace + "/" + s.Name }
