// Package quota limits the number of databases in a namespace.
package quota

import (
	"context"
	"fmt"
	"strconv"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apiserver/pkg/admission"
	listers "k8s.io/client-go/listers/core/v1"

	"example.com/extension-apiserver/pkg/apiserver"

	v1 "git.example.org/platform/dbaas/apis/dbaas/v1"
)

// Plugin admits at most as many databases as the ConfigMap dbaas-quota of their namespace allows.
var Plugin = apiserver.AdmissionPlugin{
	Name: "InstanceQuota",
	New: func(server *apiserver.Runtime) (admission.Interface, error) {
		configMaps := server.Informers.Core().V1().ConfigMaps()
		p := &plugin{admission.NewHandler(admission.Create), server, configMaps.Lister()}
		p.SetReadyFunc(configMaps.Informer().HasSynced)
		return p, nil
	},
	Permissions: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}}},
}

type plugin struct {
	*admission.Handler
	server     *apiserver.Runtime
	configMaps listers.ConfigMapLister
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != v1.Resource("databaseinstances") || a.GetSubresource() != "" {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, fmt.Errorf("quotas are not known yet"))
	}
	config, err := p.configMaps.ConfigMaps(a.GetNamespace()).Get("dbaas-quota")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	most, err := strconv.Atoi(config.Data["instances"])
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("read the quota: %w", err))
	}
	reader, err := p.server.Reader(v1.Resource("databaseinstances"))
	if err != nil {
		return err
	}
	list, err := reader.List(ctx, &internalversion.ListOptions{})
	if err != nil {
		return err
	}
	if meta.LenList(list) >= most {
		return admission.NewForbidden(a, fmt.Errorf("the namespace may have %d databases", most))
	}
	return nil
}
