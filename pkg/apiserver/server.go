// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"

	genericapiserver "k8s.io/apiserver/pkg/server"
	cachermetrics "k8s.io/apiserver/pkg/storage/cacher/metrics"
	storagemetrics "k8s.io/apiserver/pkg/storage/metrics"

	"example.com/extension-apiserver/internal/authentication"
	"example.com/extension-apiserver/internal/filters"
	"example.com/extension-apiserver/internal/serving"
)

// apiServer is a server that is ready to run.
type apiServer struct {
	generic        *genericapiserver.GenericAPIServer
	groups         []*genericapiserver.APIGroupInfo
	authentication *authentication.Authenticator
	permissions    *permissions
	trust          *authentication.Trust
	etcd           etcd
	draining       *filters.Draining
	longRunning    *filters.LongRunning
	alarms         *alarms
	hookFailed     chan error
}

// newServer creates the server and installs the API groups.
func (c *serverConfig) newServer() (*apiServer, error) {
	// The library registers these metrics after the storage is created, and loses the values
	// counted before that.
	cachermetrics.Register()
	storagemetrics.Register()
	var groups []*genericapiserver.APIGroupInfo
	for _, g := range c.options.api.Groups {
		info, err := g.apiGroupInfo(c.options.scheme, c.options.codecs, c.generic.RESTOptionsGetter,
			c.generic.Authorization.Authorizer)
		if err != nil {
			return nil, err
		}
		groups = append(groups, info)
	}
	addLists(c.sizes, groups)
	generic, err := c.generic.Complete().New(c.options.api.Name, genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("create server: %w", err)
	}
	if err := generic.InstallAPIGroups(groups...); err != nil {
		return nil, fmt.Errorf("install API groups: %w", err)
	}
	c.options.api.describeParameters(c.options.scheme, generic.Handler.GoRestfulContainer.RegisteredWebServices(), groups)
	c.options.runtime.setReaders(groups)
	hookFailed := make(chan error, 1)
	if err := c.options.api.addHooks(generic, c.options.runtime, c.permissions.problem, hookFailed); err != nil {
		return nil, err
	}
	if err := addSources(generic, groups, c.options.runtime); err != nil {
		return nil, err
	}
	if c.patches, err = filters.NewPatches(c.options.scheme, groups); err != nil {
		return nil, err
	}
	return &apiServer{generic: generic, groups: groups, authentication: c.authentication, permissions: c.permissions,
		trust: c.trust, etcd: c.etcd, draining: &c.draining, longRunning: c.longRunning, alarms: c.alarms,
		hookFailed: hookFailed}, nil
}

// run serves until the context is done and the requests in flight have a response, or until the
// embedded etcd or a post-start hook fails.
func (s *apiServer) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Requests are served for some time after the context is done, and need current trust until
	// the last one.
	served, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := serving.ReplaceServer(served, s.generic, s.authentication.IsFrontProxy); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	go s.permissions.run(served)
	go s.trust.Run(served)
	if len(s.etcd.transport.ServerList) > 0 {
		go s.alarms.run(served, s.etcd.transport)
	}
	go s.draining.Run(ctx, s.generic.ShutdownDelayDuration)
	go s.longRunning.Run(ctx, s.generic.ShutdownDelayDuration)
	go func() {
		select {
		case err := <-s.etcd.failed:
			cancel(fmt.Errorf("embedded etcd: %w", err))
		case err := <-s.hookFailed:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	prepared := s.generic.PrepareRun()
	limitMetricLabels(s.groups, s.generic.ListedPaths())
	err := prepared.RunWithContext(ctx)
	if err == nil && ctx.Err() != nil {
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			return cause
		}
	}
	return err
}

// Run serves the API with the options, which must be complete and valid, until the context is
// done and all requests have a response. It returns an error if the server cannot start, or if
// its etcd or a post-start hook fails.
func Run(ctx context.Context, o *Options) error {
	in, err := o.connect(ctx)
	if err != nil {
		return err
	}
	storage, err := o.startEtcd(ctx)
	if err != nil {
		return err
	}
	defer storage.stop()
	config, err := o.config(in, storage)
	if err != nil {
		return err
	}
	server, err := config.newServer()
	if err != nil {
		return err
	}
	return server.run(ctx)
}
