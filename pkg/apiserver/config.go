// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/metrics"

	"example.com/extension-apiserver/internal/authentication"
	"example.com/extension-apiserver/internal/filters"
	"example.com/extension-apiserver/internal/frontproxy"
	"example.com/extension-apiserver/internal/objectsizes"
	"example.com/extension-apiserver/internal/serving"
)

// serverConfig is what a server is made of.
type serverConfig struct {
	options        *Options
	generic        *genericapiserver.RecommendedConfig
	panics         *metrics.Counter
	permissions    *permissions
	trust          *authentication.Trust
	authentication *authentication.Authenticator
	longRunning    *filters.LongRunning
	etcd           etcd
	draining       filters.Draining
	patches        filters.Patches
	sizes          *objectsizes.Sizes
	alarms         *alarms
}

// config turns the options into the configuration of a server for the cluster and the etcd, both of which must respond.
func (o *Options) config(in cluster, storage etcd) (*serverConfig, error) {
	c := &serverConfig{
		options: o, generic: genericapiserver.NewRecommendedConfig(o.codecs), panics: filters.PanicCounter(o.api.Name),
		permissions: newPermissions(in.core, in.unserved, in.reviews...), etcd: storage,
	}
	if err := o.applyTraces(c); err != nil {
		return nil, err
	}
	if err := o.applyStorage(c); err != nil {
		return nil, err
	}
	o.applyDescription(c.generic)
	if err := o.ServerRun.ApplyTo(&c.generic.Config); err != nil {
		return nil, fmt.Errorf("apply request limits: %w", err)
	}
	o.switchOff(in.unserved)
	if err := o.applyRecommended(c, in.authentication); err != nil {
		return nil, err
	}
	c.generic.AddReadyzChecks(c.permissions)
	c.generic.BuildHandlerChainFunc = c.buildHandlerChain
	return c, nil
}

// filter puts something before a handler.
type filter func(http.Handler) http.Handler

// buildHandlerChain puts our filters around those of the library, which authenticate a request, audit it,
// impersonate, queue it by priority and fairness, and authorize it.
func (c *serverConfig) buildHandlerChain(handler http.Handler, config *genericapiserver.Config) http.Handler {
	handler = chain(handler, c.authorizedFilters(config))
	handler = genericapiserver.DefaultBuildHandlerChain(handler, config)
	return chain(handler, c.unauthenticatedFilters(config))
}

// chain puts the filters before the handler, in the order in which a request meets them.
func chain(handler http.Handler, filters []filter) http.Handler {
	for _, filter := range slices.Backward(filters) {
		handler = filter(handler)
	}
	return handler
}

// unauthenticatedFilters handle each request first, before authentication.
func (c *serverConfig) unauthenticatedFilters(config *genericapiserver.Config) []filter {
	return []filter{
		// How the caller was authenticated, for IdentityReview.
		authentication.WithEvidence,
		// How long a body may take to arrive, and an answer to be taken.
		func(h http.Handler) http.Handler {
			return filters.WithDeadlines(h, config.RequestTimeout, serving.FromFrontProxy)
		},
		// How many requests there are at a time.
		func(h http.Handler) http.Handler {
			return filters.WithRequestLimit(h, serving.FromFrontProxy, config.Serializer)
		},
		// Connections end while the server stops.
		c.draining.WithConnectionClose,
		// A connection of HTTP/2 without credentials has one request.
		filters.WithAnonymousClose,
		// A panic is answered and counted.
		func(h http.Handler) http.Handler { return filters.WithPanicRecovery(h, c.panics) },
		// What the authorizer is too busy for is 429, with a Status.
		func(h http.Handler) http.Handler { return filters.WithStatusErrors(h, config.Serializer) },
		// How the request was let in, for what outlives it: watches and upgraded connections.
		c.longRunning.WithGrant,
	}
}

// authorizedFilters see a request that may do what it asks for.
func (c *serverConfig) authorizedFilters(config *genericapiserver.Config) []filter {
	memory := filters.NewMemory(config, c.sizes)
	return []filter{
		// A watch ends when its caller lost the right, and has a place.
		func(h http.Handler) http.Handler { return c.longRunning.WithWatchLimit(h, config.Serializer) },
		// No web page upgrades a connection.
		func(h http.Handler) http.Handler {
			return filters.WithOriginCheck(h, config.CorsAllowedOriginList, config.Serializer)
		},
		// An upgraded connection leaves its seat, and ends like a watch.
		func(h http.Handler) http.Handler { return c.longRunning.WithUpgradeLimit(h, config.Serializer) },
		// Nothing is written while admission lacks a permission.
		func(h http.Handler) http.Handler {
			return filters.WithWriteCheck(h, c.permissions.problem, config.Serializer)
		},
		// A namespace in a path is a name.
		func(h http.Handler) http.Handler { return filters.WithNamespaceCheck(h, config.Serializer) },
		// JSON is UTF-8.
		filters.WithUTF8Check,
		// What needs much memory waits for it. YAML is encoded after the handler has given its memory back.
		func(h http.Handler) http.Handler { return memory.WithYAMLResponseLimit(h, c.patches.Streams) },
		func(h http.Handler) http.Handler { return memory.WithLimit(h, c.patches.Streams) },
		// YAML is short, and without aliases.
		func(h http.Handler) http.Handler { return filters.WithYAMLLimit(h, config.Serializer) },
		// The content of a patch fits the type of the object.
		func(h http.Handler) http.Handler {
			return c.patches.WithCheck(h, config.MaxRequestBodyBytes, config.Serializer)
		},
		// The OpenAPI document is served without redirects.
		filters.WithoutOpenAPIHash,
	}
}

// applyDescription sets what the server says of itself: versions and OpenAPI.
func (o *Options) applyDescription(config *genericapiserver.RecommendedConfig) {
	config.FeatureGate = o.ServerRun.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	config.EffectiveVersion = o.ServerRun.ComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent)
	namer := openapinamer.NewDefinitionNamer(o.scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(o.api.openAPI, namer)
	config.OpenAPIConfig.Info.Title = o.api.Name
	config.OpenAPIConfig.GetDefinitionName = servedKinds(namer.GetDefinitionName)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(o.api.openAPI, namer)
	config.OpenAPIV3Config.Info.Title = o.api.Name
	config.OpenAPIV3Config.GetDefinitionName = servedKinds(namer.GetDefinitionName)
}

// switchOff disables the parts of the server that read an API which the cluster does not serve.
func (o *Options) switchOff(parts sets.Set[string]) {
	for _, part := range sets.List(parts) {
		if part == flowControl {
			o.Recommended.Features.EnablePriorityAndFairness = false
			continue
		}
		o.Recommended.Admission.DisablePlugins = append(o.Recommended.Admission.DisablePlugins, part)
	}
}

// applyTraces sets where spans go. The library does it after the storage, whose requests would then be in no trace.
func (o *Options) applyTraces(c *serverConfig) error {
	if err := o.Recommended.EgressSelector.ApplyTo(&c.generic.Config); err != nil {
		return fmt.Errorf("apply egress selector: %w", err)
	}
	if err := o.Recommended.Traces.ApplyTo(c.generic.EgressSelector, &c.generic.Config); err != nil {
		return fmt.Errorf("apply traces: %w", err)
	}
	return nil
}

// applyStorage sets how objects are stored in the etcd.
func (o *Options) applyStorage(c *serverConfig) error {
	etcdOptions := *o.Etcd
	etcdOptions.StorageConfig.Transport = c.etcd.transport
	// The library sets these two only for storage that is made in its own way, or in kube-apiserver. Without the tracker, priority
	// and fairness takes every list for a small one.
	etcdOptions.StorageConfig.StorageObjectCountTracker = c.generic.StorageObjectCountTracker
	etcdOptions.StorageConfig.Transport.TracerProvider = c.generic.TracerProvider
	factory, err := o.newStorageFactory(&etcdOptions)
	if err != nil {
		return err
	}
	if err := etcdOptions.ApplyWithStorageFactoryTo(factory, &c.generic.Config); err != nil {
		return fmt.Errorf("apply storage: %w", err)
	}
	c.sizes = objectsizes.New()
	c.generic.RESTOptionsGetter = c.sizes.Observe(c.generic.RESTOptionsGetter)
	c.alarms = newAlarms()
	c.generic.AddReadyzChecks(c.alarms)
	return nil
}

// applyRecommended applies the library's options and then puts our authenticator in the place of theirs.
func (o *Options) applyRecommended(c *serverConfig, client kubernetes.Interface) error {
	// The client CA is read by a controller of ours, because the options keep theirs to themselves.
	clientCA, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", metav1.NamespaceSystem, frontproxy.ConfigMapName, frontproxy.ClientCAKey, client)
	if err != nil {
		return fmt.Errorf("watch the client CA: %w", err)
	}
	o.Recommended.Authentication.ClientCert.CAContentProvider = clientCA
	recommended := *o.Recommended
	// applyTraces applied these.
	recommended.EgressSelector, recommended.Traces = nil, nil
	// newAuthorizer adds who is always allowed.
	delegated := *recommended.Authorization
	delegated.AlwaysAllowGroups, delegated.AlwaysAllowPaths = nil, nil
	recommended.Authorization = &delegated
	if err := recommended.ApplyTo(c.generic); err != nil {
		return fmt.Errorf("apply options: %w", err)
	}
	if c.generic.FlowControl != nil { // else priority and fairness is off
		c.generic.FlowControl = filters.NewSeats(c.generic.FlowControl)
	}
	c.generic.AdmissionControl = filters.WithObjectLimits(c.generic.AdmissionControl, &c.patches)
	reviewer, err := o.newReviewer()
	if err != nil {
		return err
	}
	if c.generic.Authorization.Authorizer, err = o.newAuthorizer(reviewer, c.permissions.doubted); err != nil {
		return err
	}
	if c.trust, err = authentication.NewTrust(client, o.Trust.tolerated()); err != nil {
		return fmt.Errorf("watch whom to trust: %w", err)
	}
	sources := authentication.Sources{
		RequestHeader: c.generic.Authentication.RequestHeaderConfig,
		ClientCA:      clientCA,
		Status:        c.trust.Status,
	}
	if o.Trust.BearerTokens {
		// A client of its own: its limit is used up by a flood of tokens.
		tokens, err := newClient(o.Recommended.Authentication.RemoteKubeConfigFile, 0)
		if err != nil {
			return err
		}
		sources.TokenReviews = tokens.AuthenticationV1()
	}
	c.generic.Authentication.APIAudiences = o.Trust.Audiences
	if c.authentication, err = authentication.New(o.Recommended.Authentication, sources); err != nil {
		return err
	}
	c.longRunning = filters.NewLongRunning(c.authentication, c.generic.Authorization.Authorizer, c.panics, o.Watches.PerUser, o.Watches.Total)
	c.generic.Authentication.Authenticator = c.longRunning
	c.generic.AddReadyzChecks(healthz.NamedCheck("front-proxy-trust", func(*http.Request) error { return sources.Ready() }))
	return nil
}
