// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// Target defines the resource to check.
type Target struct {
	// Config is the configuration of clients of kube-apiserver. Its user must have all
	// permissions for the resource and be able to create namespaces. The authorization checks
	// also need permission to impersonate users, the admission checks to create policies.
	Config *rest.Config
	// Resource has the form RESOURCE.VERSION.GROUP, such as deployments.v1.apps, or
	// configmaps.v1. for a resource without a group. Default: the resource of the sample's kind.
	Resource string
	// Sample is a valid object. It must set all fields that the server would default, because checks
	// compare responses with the objects that they sent. Its name matters only if the run cannot
	// create objects: the checks of the area existing then read the object of this name.
	Sample *unstructured.Unstructured
	// Change is a JSON merge patch that changes the sample beyond its metadata and leaves it
	// valid: {"spec": {"replicas": 2}}.
	Change map[string]any
	// Invalid is a JSON merge patch that makes the sample invalid.
	Invalid map[string]any
	// Status is a JSON merge patch of the subresource status. If it is set, no other client may
	// write the status of the objects during the run.
	Status map[string]any
	// Actions are valid bodies of subresources with the verb create, by name, without apiVersion
	// and kind: {"cancel": {"reason": "late"}}. During the run, only actions may change the
	// status of the objects.
	Actions map[string]map[string]any
	// Prepare creates the objects to which objects like the sample refer, in a namespace that the
	// run has created. The namespace is "" for a cluster-scoped resource. Default: nothing.
	Prepare func(ctx context.Context, config *rest.Config, namespace string) error
	// Permissions are the permissions that the server requires beyond the verbs of requests, such
	// as a verb approve for a field (Authorize of registry.Kind). The users that checks create get
	// them in the whole cluster. They must not have verbs of requests for the resource, which
	// checks withhold from their users. Default: none.
	Permissions []rbacv1.PolicyRule
	// AllowDisruptive permits checks that would affect other users if the server failed them. Set
	// it only for temporary clusters.
	AllowDisruptive bool
	// Server is the configuration for the server's own port, with a user who may read /metrics
	// and the health endpoints. For resources that kube-apiserver serves itself, it is that of
	// kube-apiserver. Checks that need Server, or one of the following fields, are skipped if it
	// is not set.
	Server *rest.Config
	// AuditLog is the file to which the server writes audit events. Its policy must record at
	// least the metadata of all requests for the resource.
	AuditLog string
	// WebhookAddress is the HOST:PORT at which the run serves admission webhooks. The server must
	// be able to connect to it. Port 0 selects a free port.
	WebhookAddress string
	// Kubectl is the command with flags for the same cluster and user: kubectl --kubeconfig=FILE.
	Kubectl []string
	// Direct is the server's own port, for ExecuteSecurity.
	Direct *Direct
	// Known are the IDs of checks that the target is known to fail. If one of them passes, it is
	// reported.
	Known []string
	// Only contains the IDs or areas of the checks to run. Default: all.
	Only []string
	// Parallel is the maximum number of concurrent checks. Default: 8.
	Parallel int
	// Timeout limits the whole run, without its cleanup of at most a minute. Default: 5 minutes.
	Timeout time.Duration
	// CheckTimeout limits one check. Default: 90 seconds. The garbage collector and the quota
	// controller of kube-controller-manager look for new resources every 30 seconds, which causes
	// the longest waits.
	CheckTimeout time.Duration
	// Progress is called with each result and the total number of results. Calls are not
	// concurrent. Default: none.
	Progress func(result Result, total int)
}

// ReadSample reads a sample from a YAML or JSON file.
func ReadSample(path string) (*unstructured.Unstructured, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sample := &unstructured.Unstructured{}
	text, err := yaml.YAMLToJSONStrict(data)
	if err == nil {
		err = utiljson.Unmarshal(text, &sample.Object)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not an object in YAML or JSON: %w", path, err)
	}
	return sample, nil
}

const (
	defaultParallel     = 8
	defaultTimeout      = 5 * time.Minute
	defaultCheckTimeout = 90 * time.Second
	// checkCleanupTimeout and runCleanupTimeout limit the deletion of the objects of a check and
	// of a run.
	checkCleanupTimeout = 20 * time.Second
	runCleanupTimeout   = 40 * time.Second
	// discoveryTimeout limits each discovery request, which has no context, so that an
	// interrupted run stops.
	discoveryTimeout = 15 * time.Second
	// creationTimeout is how long a create request continues after the run was interrupted,
	// because its object must be known to be deleted.
	creationTimeout = 10 * time.Second
)

// complete sets defaults and returns all errors in the target, before any request is sent.
func (t *Target) complete(checks []Check) (schema.GroupVersionResource, error) {
	if t.Parallel <= 0 {
		t.Parallel = defaultParallel
	}
	if t.Timeout <= 0 {
		t.Timeout = defaultTimeout
	}
	if t.CheckTimeout <= 0 {
		t.CheckTimeout = defaultCheckTimeout
	}
	gvr, problems := t.parse()
	for _, patch := range []struct {
		name  string
		value *map[string]any
	}{{"Change", &t.Change}, {"Invalid", &t.Invalid}, {"Status", &t.Status}} {
		if *patch.value == nil {
			continue
		}
		var err error
		if *patch.value, err = plain(*patch.value); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", patch.name, err))
		}
	}
	if len(problems) == 0 {
		for name, patch := range map[string]map[string]any{"Change": t.Change, "Invalid": t.Invalid} {
			if len(patch) == 0 {
				continue
			}
			if patched, err := mergePatched(t.Sample, patch); err != nil ||
				reflect.DeepEqual(patched.Object, t.Sample.Object) {
				problems = append(problems, fmt.Errorf("%s is %v: must be a JSON merge patch that changes the sample",
					name, patch))
			}
		}
	}
	known := map[string]bool{}
	for _, c := range checks {
		known[c.ID], known[c.Area()] = true, true
	}
	for _, name := range append(slices.Clone(t.Only), t.Known...) {
		if !known[name] {
			problems = append(problems, fmt.Errorf("unknown check or area %q", name))
		}
	}
	if t.WebhookAddress != "" {
		if host, _, err := net.SplitHostPort(t.WebhookAddress); err != nil || host == "" {
			problems = append(problems, fmt.Errorf("WebhookAddress is %q: must be HOST:PORT that the server can reach",
				t.WebhookAddress))
		}
	}
	if t.AuditLog != "" {
		if _, err := os.Stat(t.AuditLog); err != nil {
			problems = append(problems, fmt.Errorf("read the audit log: %w", err))
		}
	}
	if len(problems) > 0 {
		return gvr, &TargetError{problems}
	}
	return gvr, nil
}

// plain converts a value to the types of decoded JSON, with int64 and float64.
func plain(value map[string]any) (out map[string]any, err error) {
	data, err := json.Marshal(value)
	if err == nil {
		err = utiljson.Unmarshal(data, &out)
	}
	return out, err
}

// mergePatched returns an object after a JSON merge patch.
func mergePatched(obj *unstructured.Unstructured, patch map[string]any) (*unstructured.Unstructured, error) {
	have, err := json.Marshal(obj.Object)
	if err != nil {
		return nil, err
	}
	change, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	if have, err = jsonpatch.MergePatch(have, change); err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{}
	return out, utiljson.Unmarshal(have, &out.Object)
}

// discovered contains the results of discovery for the resource.
type discovered struct {
	gvr           schema.GroupVersionResource
	resource      metav1.APIResource
	subresources  map[string]metav1.APIResource
	otherVersions []string // versions of the group that also have the resource
	preferred     string
	serverVersion string
	uncreated     string // why no object like the sample can be created
}

// TargetError contains the errors in a target. No request was sent.
type TargetError struct{ Problems []error }

func (e *TargetError) Error() string   { return errors.Join(e.Problems...).Error() }
func (e *TargetError) Unwrap() []error { return e.Problems }

// parse determines the resource. Its name is empty if only the kind is known.
func (t *Target) parse() (gvr schema.GroupVersionResource, problems []error) {
	if t.Config == nil {
		problems = append(problems, errors.New("the target has no Config"))
	}
	var named *schema.GroupVersionResource
	if t.Resource != "" {
		if named, _ = schema.ParseResourceArg(t.Resource); named == nil {
			problems = append(problems,
				fmt.Errorf("the resource is %q: must be RESOURCE.VERSION.GROUP, such as deployments.v1.apps, or "+
					"configmaps.v1. with a dot at the end for the core group", t.Resource))
		}
	}
	if t.Sample == nil || len(t.Sample.Object) == 0 {
		return gvr, append(problems, errors.New("the target has no Sample, which must be a valid object"))
	}
	if t.Sample.GetAPIVersion() == "" || t.Sample.GetKind() == "" {
		return gvr, append(problems, errors.New("the sample has no apiVersion or no kind"))
	}
	sample, err := plain(t.Sample.Object)
	if err != nil {
		return gvr, append(problems, fmt.Errorf("convert the sample: %w", err))
	}
	t.Sample = &unstructured.Unstructured{Object: sample}
	gvr = t.Sample.GroupVersionKind().GroupVersion().WithResource("")
	if named != nil {
		if named.GroupVersion() != gvr.GroupVersion() {
			problems = append(problems, fmt.Errorf("the sample has the version %s, and the resource has %s",
				t.Sample.GetAPIVersion(), named.GroupVersion()))
		}
		gvr = *named
	}
	return gvr, problems
}

// selected reports whether a check is to run.
func (t *Target) selected(c Check) bool {
	return len(t.Only) == 0 || slices.Contains(t.Only, c.ID) || slices.Contains(t.Only, c.Area())
}

// discover returns the results of discovery for a resource, or for the resource of a kind if its
// name is empty.
func discover(ctx context.Context, config *rest.Config, gvr schema.GroupVersionResource,
	kind string) (*discovered, error) {
	config = rest.CopyConfig(config)
	config.Timeout = discoveryTimeout
	if deadline, ok := ctx.Deadline(); ok {
		config.Timeout = min(config.Timeout, time.Until(deadline))
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	list, err := client.ServerResourcesForGroupVersion(gvr.GroupVersion().String())
	if err != nil {
		return nil, fmt.Errorf("discover %s: %w", gvr.GroupVersion(), err)
	}
	for _, r := range list.APIResources {
		if gvr.Resource == "" && r.Kind == kind && !strings.Contains(r.Name, "/") {
			gvr.Resource = r.Name
		}
	}
	f := &discovered{gvr: gvr, subresources: map[string]metav1.APIResource{}}
	for _, r := range list.APIResources {
		if name, sub, ok := strings.Cut(r.Name, "/"); ok && name == gvr.Resource {
			f.subresources[sub] = r
		} else if r.Name == gvr.Resource {
			f.resource = r
		}
	}
	if f.resource.Name == "" {
		if gvr.Resource == "" {
			return nil, fmt.Errorf("%s has no kind %q; its resources: %s", gvr.GroupVersion(), kind,
				resourceNames(list))
		}
		return nil, fmt.Errorf("%s has no resource %q; its resources: %s", gvr.GroupVersion(), gvr.Resource,
			cmp.Or(resourceNames(list), "none"))
	}
	if version, err := client.ServerVersion(); err == nil {
		f.serverVersion = version.GitVersion
	}
	groups, err := client.ServerGroups()
	if err != nil {
		return nil, fmt.Errorf("discover groups: %w", err)
	}
	for _, g := range groups.Groups {
		if g.Name != gvr.Group {
			continue
		}
		f.preferred = g.PreferredVersion.Version
		for _, v := range g.Versions {
			other, err := client.ServerResourcesForGroupVersion(v.GroupVersion)
			if v.Version != gvr.Version && err == nil && slices.Contains(strings.Fields(resourceNames(other)),
				gvr.Resource) {
				f.otherVersions = append(f.otherVersions, v.Version)
			}
		}
	}
	return f, nil
}

func resourceNames(list *metav1.APIResourceList) string {
	var out []string
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") {
			out = append(out, r.Name)
		}
	}
	return strings.Join(out, " ")
}
