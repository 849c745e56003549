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
	"example.com/extension-apiserver/internal/restoptions"
	"example.com/extension-apiserver/internal/serving"
)

// serverConfig is the configuration of a server and its parts.
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
	turns          *filters.Turns
	alarms         *alarms
}

// config returns the configuration of a server for the cluster and etcd, both of which must
// respond.
func (o *Options) config(in cluster, storage etcd) (*serverConfig, error) {
	c := &serverConfig{
		options: o, generic: genericapiserver.NewRecommendedConfig(o.codecs), panics: filters.PanicCounter(o.api.Name),
		etcd: storage,
	}
	namespace, err := ownNamespace(o.Recommended.CoreAPI.CoreAPIKubeconfigPath)
	if err != nil {
		return nil, err
	}
	o.runtime.Namespace = namespace
	needs := append(in.reviews, o.api.needs(in.core, namespace, o.Recommended.Admission.DisablePlugins)...)
	c.permissions = newPermissions(in.core, in.unserved, needs...)
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
	c.generic.LongRunningFunc = filters.WithLogs(c.generic.LongRunningFunc, c.generic.FlowControl != nil)
	c.generic.AddReadyzChecks(c.permissions)
	c.generic.BuildHandlerChainFunc = c.buildHandlerChain
	return c, nil
}

// filter wraps an http.Handler.
type filter func(http.Handler) http.Handler

// buildHandlerChain adds filters before and after those of the library, which authenticate,
// audit, impersonate, queue (API Priority and Fairness) and authorize a request.
func (c *serverConfig) buildHandlerChain(handler http.Handler, config *genericapiserver.Config) http.Handler {
	handler = chain(handler, c.authorizedFilters(config))
	handler = genericapiserver.DefaultBuildHandlerChain(handler, config)
	return chain(handler, c.unauthenticatedFilters(config))
}

// chain wraps the handler in the filters. The first filter is the outermost.
func chain(handler http.Handler, filters []filter) http.Handler {
	for _, filter := range slices.Backward(filters) {
		handler = filter(handler)
	}
	return handler
}

// unauthenticatedFilters returns the filters that run before authentication, in order.
func (c *serverConfig) unauthenticatedFilters(config *genericapiserver.Config) []filter {
	return []filter{
		// Record how the caller is authenticated, for IdentityReview.
		authentication.WithCredential,
		// Limit the time to receive a body and to send a response.
		func(h http.Handler) http.Handler {
			return filters.WithDeadlines(h, config.RequestTimeout, serving.FromFrontProxy)
		},
		// Limit concurrent requests.
		func(h http.Handler) http.Handler {
			return filters.WithRequestLimit(h, serving.FromFrontProxy, config.Serializer)
		},
		// Limit header fields and selectors.
		func(h http.Handler) http.Handler { return filters.WithHeaderLimit(h, config.Serializer) },
		// Close connections while the server shuts down.
		c.draining.WithConnectionClose,
		// Allow one request per HTTP/2 connection without credentials.
		filters.WithAnonymousClose,
		// Convert a panic to a response and count it.
		func(h http.Handler) http.Handler { return filters.WithPanicRecovery(h, c.panics) },
		// Respond with 429 and a Status if the authorizer is too busy.
		func(h http.Handler) http.Handler { return filters.WithStatusErrors(h, config.Serializer) },
		// Record how the request was authenticated and authorized, for watches, logs and upgraded
		// connections.
		c.longRunning.WithGrant,
	}
}

// authorizedFilters returns the filters that run after authorization, in order.
func (c *serverConfig) authorizedFilters(config *genericapiserver.Config) []filter {
	memory := filters.NewMemory(config, c.sizes, c.turns)
	return []filter{
		// Add the Runtime of the server to the context, for the hooks of kinds.
		c.options.runtime.withRuntime,
		// Limit watches and logs, and end those whose user is no longer authorized.
		func(h http.Handler) http.Handler { return c.longRunning.WithWatchLimit(h, memory, config.Serializer) },
		// Reject upgrade requests from web pages.
		func(h http.Handler) http.Handler {
			return filters.WithOriginCheck(h, config.CorsAllowedOriginList, config.Serializer)
		},
		// Release the API Priority and Fairness seat of an upgraded connection, and end it like a
		// watch.
		func(h http.Handler) http.Handler { return c.longRunning.WithUpgradeLimit(h, config.Serializer) },
		// Reject writes while admission lacks a permission or its informers have not synced.
		func(h http.Handler) http.Handler {
			return filters.WithWriteCheck(h, c.admissionProblem, config.Serializer)
		},
		// Reject invalid namespace names.
		func(h http.Handler) http.Handler { return filters.WithNamespaceCheck(h, config.Serializer) },
		// Reject JSON that is not UTF-8.
		filters.WithUTF8Check,
		// Queue requests that need much memory. YAML is encoded after the handler has released
		// its share.
		func(h http.Handler) http.Handler { return memory.WithYAMLResponseLimit(h, c.patches.Streams) },
		func(h http.Handler) http.Handler { return memory.WithLimit(h, c.patches.Streams) },
		// Reject YAML that is too long or has aliases.
		func(h http.Handler) http.Handler { return filters.WithYAMLLimit(h, config.Serializer) },
		// Reject patches that do not match the type of the object.
		func(h http.Handler) http.Handler {
			return c.patches.WithCheck(h, config.MaxRequestBodyBytes, config.Serializer)
		},
		// Serve the OpenAPI document without redirects.
		filters.WithoutOpenAPIHash,
	}
}

// admissionProblem returns the reason why admission plugins cannot decide, or nil.
func (c *serverConfig) admissionProblem() error {
	if err := c.permissions.problem(); err != nil || len(c.options.api.Admission) == 0 {
		return err
	}
	return c.options.runtime.checkInformers()
}

// applyDescription sets the versions and the OpenAPI configuration.
func (o *Options) applyDescription(config *genericapiserver.RecommendedConfig) {
	config.FeatureGate = o.ServerRun.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	config.EffectiveVersion = o.ServerRun.ComponentGlobalsRegistry.EffectiveVersionFor(
		basecompatibility.DefaultKubeComponent)
	namer := openapinamer.NewDefinitionNamer(o.scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(o.api.openAPI, namer)
	config.OpenAPIConfig.Info.Title = o.api.Name
	config.OpenAPIConfig.GetDefinitionName = servedKinds(namer.GetDefinitionName)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(o.api.openAPI, namer)
	config.OpenAPIV3Config.Info.Title = o.api.Name
	config.OpenAPIV3Config.GetDefinitionName = servedKinds(namer.GetDefinitionName)
}

// switchOff disables the parts of the server that need an API that the cluster does not serve.
func (o *Options) switchOff(parts sets.Set[string]) {
	for _, part := range sets.List(parts) {
		if part == flowControl {
			o.Recommended.Features.EnablePriorityAndFairness = false
			continue
		}
		o.Recommended.Admission.DisablePlugins = append(o.Recommended.Admission.DisablePlugins, part)
	}
}

// applyTraces sets the trace exporter before the storage is created. The library would set it
// later, and requests to etcd would not be traced.
func (o *Options) applyTraces(c *serverConfig) error {
	if err := o.Recommended.EgressSelector.ApplyTo(&c.generic.Config); err != nil {
		return fmt.Errorf("apply egress selector: %w", err)
	}
	if err := o.Recommended.Traces.ApplyTo(c.generic.EgressSelector, &c.generic.Config); err != nil {
		return fmt.Errorf("apply traces: %w", err)
	}
	return nil
}

// applyStorage configures the storage of objects.
func (o *Options) applyStorage(c *serverConfig) error {
	etcdOptions := *o.Etcd
	etcdOptions.StorageConfig.Transport = c.etcd.transport
	// The library sets these two only in RecommendedOptions and in kube-apiserver. Without the
	// tracker, API Priority and Fairness estimates every list as small.
	etcdOptions.StorageConfig.StorageObjectCountTracker = c.generic.StorageObjectCountTracker
	etcdOptions.StorageConfig.Transport.TracerProvider = c.generic.TracerProvider
	etcdOptions.SkipHealthEndpoints = !o.stores
	factory, err := o.newStorageFactory(&etcdOptions)
	if err != nil {
		return err
	}
	if err := etcdOptions.ApplyWithStorageFactoryTo(factory, &c.generic.Config); err != nil {
		return fmt.Errorf("apply storage: %w", err)
	}
	c.sizes = objectsizes.New()
	c.turns = filters.NewTurns(c.generic.StorageObjectCountTracker, c.sizes)
	c.generic.RESTOptionsGetter = filters.InStorage(c.sizes.Observe(restoptions.WithSources(c.generic.RESTOptionsGetter),
		o.scheme))
	// The readiness probe of the manifests excludes this check by name. The library logs a warning
	// for each probe that excludes a check that does not exist.
	c.alarms = newAlarms()
	c.generic.AddReadyzChecks(c.alarms)
	return nil
}

// applyRecommended applies the library's options and replaces its authenticator, authorizer and
// flow control.
func (o *Options) applyRecommended(c *serverConfig, client kubernetes.Interface) error {
	// The library's options do not expose their controller of the client CA, so create another
	// one.
	clientCA, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", metav1.NamespaceSystem,
		frontproxy.ConfigMapName, frontproxy.ClientCAKey, client)
	if err != nil {
		return fmt.Errorf("watch the client CA: %w", err)
	}
	o.Recommended.Authentication.ClientCert.CAContentProvider = clientCA
	recommended := *o.Recommended
	// applyTraces has applied these.
	recommended.EgressSelector, recommended.Traces = nil, nil
	// newAuthorizer adds the always-allowed groups and paths.
	delegated := *recommended.Authorization
	delegated.AlwaysAllowGroups, delegated.AlwaysAllowPaths = nil, nil
	recommended.Authorization = &delegated
	if err := recommended.ApplyTo(c.generic); err != nil {
		return fmt.Errorf("apply options: %w", err)
	}
	if c.generic.FlowControl != nil { // nil if API Priority and Fairness is disabled
		c.generic.FlowControl = filters.NewSeats(c.generic.FlowControl, serving.FromFrontProxy, c.turns)
	}
	c.generic.AdmissionControl = filters.WithObjectLimits(c.generic.AdmissionControl, &c.patches)
	reviewer, err := o.newReviewer()
	if err != nil {
		return err
	}
	if c.generic.Authorization.Authorizer, err = o.newAuthorizer(reviewer, c.permissions.requestReview); err != nil {
		return err
	}
	o.runtime.Authorizer = c.generic.Authorization.Authorizer
	if c.trust, err = authentication.NewTrust(client, o.Trust.tolerated()); err != nil {
		return fmt.Errorf("watch the trusted front-proxy CA: %w", err)
	}
	sources := authentication.Sources{
		RequestHeader: c.generic.Authentication.RequestHeaderConfig,
		ClientCA:      clientCA,
		Status:        c.trust.Status,
	}
	if o.Trust.BearerTokens {
		// TokenReviews have their own client, because many invalid tokens can exhaust its rate
		// limit.
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
	c.longRunning = filters.NewLongRunning(c.authentication, c.generic.Authorization.Authorizer, c.panics,
		o.Watches.PerUser, o.Watches.Total)
	c.generic.Authentication.Authenticator = c.longRunning
	c.generic.AddReadyzChecks(healthz.NamedCheck("front-proxy-trust",
		func(*http.Request) error { return sources.Ready() }))
	return nil
}
