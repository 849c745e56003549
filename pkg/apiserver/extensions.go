// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
)

// Flags are the additional flags of an API.
type Flags interface {
	// AddFlags adds the flags. Their names must differ from those of the server. It is called
	// once for each command line.
	AddFlags(fs *pflag.FlagSet)
	// Validate returns all validation errors of the values. It is called before the server
	// starts.
	Validate() []error
}

// AdmissionPlugin validates or changes objects before they are stored, in the server's process.
type AdmissionPlugin struct {
	// Name is the name of the plugin for --disable-admission-plugins and in the log. Required.
	Name string
	// New creates the plugin, which implements admission.MutationInterface,
	// admission.ValidationInterface or both. Get the informers of the Runtime here. Required.
	New func(*Runtime) (admission.Interface, error)
	// Permissions are the permissions that the plugin needs in the cluster, such as to list the
	// objects of its informers. While one is missing or an informer has not synced, the server is
	// not ready and rejects writes. Default: none.
	Permissions []rbacv1.PolicyRule
}

// PostStartHook runs when the server serves and has all its permissions. The server is not ready
// before the hook returns. An error stops the server. Long-running work, such as a controller,
// must run in goroutines that the hook starts and that end when ctx is done.
type PostStartHook func(ctx context.Context, r *Runtime) error

// AllPermissions returns the permissions of the API and of its admission plugins.
func (a API) AllPermissions() []rbacv1.PolicyRule {
	rules := slices.Clone(a.Permissions)
	for _, plugin := range a.Admission {
		rules = append(rules, plugin.Permissions...)
	}
	return rules
}

// validateExtensions returns all errors in plugins, hooks and permissions.
func (a API) validateExtensions() []error {
	var problems []error
	known := append(genericoptions.NewAdmissionOptions().Plugins.Registered(), resourcequota.PluginName)
	for i, plugin := range a.Admission {
		switch {
		case plugin.Name == "":
			problems = append(problems, fmt.Errorf("admission plugin %d has no name", i+1))
		case slices.Contains(known, plugin.Name):
			problems = append(problems, fmt.Errorf("duplicate admission plugin %q", plugin.Name))
		case plugin.New == nil:
			problems = append(problems, fmt.Errorf("admission plugin %s: New is not set", plugin.Name))
		}
		known = append(known, plugin.Name)
		problems = append(problems, validateRules("admission plugin "+plugin.Name, plugin.Permissions)...)
	}
	for _, name := range slices.Sorted(maps.Keys(a.PostStart)) {
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			problems = append(problems, fmt.Errorf("post-start hook %q: %s", name, wrong[0]))
		}
		if a.PostStart[name] == nil {
			problems = append(problems, fmt.Errorf("post-start hook %q: the function is nil", name))
		}
	}
	problems = append(problems, validateRules("the API", a.Permissions)...)
	return append(problems, validateRules("the API in its namespace", a.NamespacePermissions)...)
}

// validateRules returns an error for each rule that the server could not review at
// kube-apiserver.
func validateRules(of string, rules []rbacv1.PolicyRule) []error {
	var problems []error
	for _, rule := range rules {
		if len(rule.NonResourceURLs) > 0 || len(rule.Verbs) == 0 || len(rule.APIGroups) == 0 || len(rule.Resources) == 0 {
			problems = append(problems, fmt.Errorf("permission of %s: %v: verbs, apiGroups and resources are required", of,
				rule))
		}
	}
	return problems
}

// needs returns the permissions of the API that the server reviews at kube-apiserver, except
// those of disabled plugins. namespace is the server's own namespace.
func (a API) needs(client kubernetes.Interface, namespace string, off []string) []need {
	all := append(needsOf(a.Name, a.Permissions, client, ""),
		needsOf(a.Name, a.NamespacePermissions, client, namespace)...)
	for _, plugin := range a.Admission {
		if !slices.Contains(off, plugin.Name) {
			all = append(all, needsOf(plugin.Name, plugin.Permissions, client, "")...)
		}
	}
	return all
}

func needsOf(part string, rules []rbacv1.PolicyRule, client kubernetes.Interface, namespace string) []need {
	var all []need
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					all = append(all, need{requiredAPI{part: part, verbs: rule.Verbs, namespace: namespace, name: name,
						resource: schema.GroupVersionResource{Group: group, Version: "*", Resource: resource}}, client})
				}
			}
		}
	}
	return all
}

// addPlugins adds the admission plugins of the API before policies and webhooks, which decide
// last.
func (a API) addPlugins(options *genericoptions.AdmissionOptions, runtime *Runtime) {
	var names []string
	for _, plugin := range a.Admission {
		options.Plugins.Register(plugin.Name, func(io.Reader) (admission.Interface, error) {
			created, err := plugin.New(runtime)
			if err == nil && created == nil {
				err = fmt.Errorf("create admission plugin %s: New returned nil", plugin.Name)
			}
			return created, err
		})
		names = append(names, plugin.Name)
	}
	const afterNamespaceLifecycle = 1
	options.RecommendedPluginOrder = slices.Insert(options.RecommendedPluginOrder, afterNamespaceLifecycle, names...)
}

// hooks runs the post-start hooks of an API. It is a check of /readyz but not of /livez, because
// a restart does not grant a permission for which the hooks wait.
type hooks struct {
	all     map[string]PostStartHook
	runtime *Runtime
	problem func() error // the hooks wait until it returns nil
	failed  chan<- error // receives the first error

	mutex   sync.Mutex
	pending sets.Set[string]
}

// addHooks adds the hooks to the server. Before the hooks, it starts the informers of admission
// plugins.
func (a API) addHooks(generic *genericapiserver.GenericAPIServer, runtime *Runtime, problem func() error,
	failed chan<- error) error {
	h := &hooks{all: a.PostStart, runtime: runtime, problem: problem, failed: failed, pending: sets.KeySet(a.PostStart)}
	if err := generic.AddReadyzChecks(h); err != nil {
		return fmt.Errorf("add the check of post-start hooks: %w", err)
	}
	return generic.AddPostStartHook("extensions", func(c genericapiserver.PostStartHookContext) error {
		runtime.startInformers(c)
		for name := range h.all {
			go h.run(c, name)
		}
		return nil
	})
}

func (h *hooks) run(ctx context.Context, name string) {
	_ = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		return h.problem() == nil, nil
	})
	if ctx.Err() != nil {
		return
	}
	err := h.all[name](ctx, h.runtime)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		h.mutex.Lock()
		defer h.mutex.Unlock()
		h.pending.Delete(name)
	default:
		select {
		case h.failed <- fmt.Errorf("post-start hook %s: %w", name, err):
		default:
		}
	}
}

// Name implements healthz.HealthChecker.
func (h *hooks) Name() string { return "post-start-hooks" }

// Check implements healthz.HealthChecker.
func (h *hooks) Check(*http.Request) error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if len(h.pending) > 0 {
		return fmt.Errorf("post-start hooks that have not returned: %s", strings.Join(sets.List(h.pending), ", "))
	}
	return nil
}
