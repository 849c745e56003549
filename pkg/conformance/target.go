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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// Target is what is checked.
type Target struct {
	// Config is the way to kube-apiserver, for a user who may do everything with the resource, and create namespaces.
	// The checks of authorization also want the right to impersonate, those of admission that to create policies.
	Config *rest.Config
	// Resource is RESOURCE.VERSION.GROUP, such as deployments.v1.apps; configmaps.v1. for one without a group. Default:
	// that of the sample's kind.
	Resource string
	// Sample is a valid object, with all fields that the server would set itself: checks compare what it answers with
	// what they sent. Its name does not matter.
	Sample *unstructured.Unstructured
	// Change is a JSON merge patch that changes the sample beyond its metadata and leaves it valid: {"spec":
	// {"replicas": 2}}.
	Change map[string]any
	// Invalid is one that makes it invalid.
	Invalid map[string]any
	// Status is one of the subresource status. With it, nobody else may write the status of the objects meanwhile.
	Status map[string]any
	// Actions are valid bodies of subresources with the verb create, by name, without apiVersion and kind: {"cancel":
	// {"reason": "late"}}. The status of the objects may change meanwhile only by them.
	Actions map[string]map[string]any
	// Prepare creates what objects like the sample refer to, in a namespace that the run has created; "" for a resource
	// without namespaces. Default: nothing.
	Prepare func(ctx context.Context, config *rest.Config, namespace string) error
	// AllowDisruptive is for clusters that are thrown away: checks that would harm others if the server failed them.
	AllowDisruptive bool
	// Server is the server's own port, for a user who may read /metrics and the health endpoints; that of
	// kube-apiserver for what it serves itself. Without it, and without each of the following, the checks that need it
	// are skipped.
	Server *rest.Config
	// AuditLog is the file that the server writes audit events to, by a policy that has at least the metadata of all
	// requests about the resource.
	AuditLog string
	// WebhookAddress is the HOST:PORT at which the run serves admission webhooks, and the server reaches them. The port
	// may be 0, for any.
	WebhookAddress string
	// Kubectl is the command with its flags for the same cluster and user: kubectl --kubeconfig=FILE.
	Kubectl []string
	// Direct is the server's own port, for ExecuteSecurity.
	Direct *Direct
	// Known are the ids of checks that the target is known to fail. One of these that passes is reported as well.
	Known []string
	// Only are the ids or the areas of the checks that are run. Default: all.
	Only []string
	// Parallel is how many checks run at a time. Default: 8.
	Parallel int
	// Timeout bounds the whole run, without its cleanup of at most a minute. Default: 5 minutes.
	Timeout time.Duration
	// CheckTimeout bounds one check. Default: 90 seconds; the longest wait until the garbage collector and the quotas
	// of kube-controller-manager know a resource, which they look for every 30 seconds.
	CheckTimeout time.Duration
	// Progress is called with each result, by one goroutine at a time, and how many there will be. Default: not at all.
	Progress func(result Result, total int)
}

// ReadSample reads a sample from a file in YAML or JSON.
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
	// checkCleanupTimeout and runCleanupTimeout bound the deletion of what a check and a run made.
	checkCleanupTimeout = 20 * time.Second
	runCleanupTimeout   = 40 * time.Second
	// discoveryTimeout bounds each request of discovery, which has no context: an interrupted run must end.
	discoveryTimeout = 15 * time.Second
	// creationTimeout is how long a request that creates goes on after the run was interrupted: what it made must be
	// known to be deleted.
	creationTimeout = 10 * time.Second
)

// complete sets defaults. It returns all that is wrong with the target, before anything is sent.
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

// plain has the types that JSON is read into: int64 and float64.
func plain(value map[string]any) (out map[string]any, err error) {
	data, err := json.Marshal(value)
	if err == nil {
		err = utiljson.Unmarshal(data, &out)
	}
	return out, err
}

// mergePatched is an object after a JSON merge patch.
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

// discovered are what discovery says of the resource.
type discovered struct {
	gvr           schema.GroupVersionResource
	resource      metav1.APIResource
	subresources  map[string]metav1.APIResource
	otherVersions []string // of the group that have the resource
	preferred     string
	serverVersion string
	uncreated     string // why no object like the sample can be created
}

// TargetError says what is wrong with a target. Nothing was sent.
type TargetError struct{ Problems []error }

func (e *TargetError) Error() string   { return errors.Join(e.Problems...).Error() }
func (e *TargetError) Unwrap() []error { return e.Problems }

// parse finds the resource; its name is empty if only the kind is known.
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

// selected says whether a check is to run.
func (t *Target) selected(c Check) bool {
	return len(t.Only) == 0 || slices.Contains(t.Only, c.ID) || slices.Contains(t.Only, c.Area())
}

// discover finds the facts of a resource, or of that of a kind if its name is empty.
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
