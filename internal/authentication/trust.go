// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/sets"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/extension-apiserver/internal/frontproxy"
)

// Status reports what a state of the trust ConfigMap allows. A nil field means that it is allowed.
type Status struct {
	// FrontProxy is the reason to reject all front-proxy identities.
	FrontProxy error
	// Clients is the reason to reject all client certificates of users.
	Clients error
}

// Evaluate evaluates the ConfigMap; nil means that it does not exist. tolerated contains names of
// frontproxy.Weaknesses.
func Evaluate(cm *corev1.ConfigMap, tolerated sets.Set[string]) Status {
	return statusOf(frontproxy.Evaluate(cm), tolerated)
}

func statusOf(evaluated frontproxy.Status, tolerated sets.Set[string]) Status {
	var s Status
	for _, p := range evaluated.Problems {
		if !tolerated.Has(p.Weakness) {
			s.FrontProxy = errors.Join(s.FrontProxy, errorOf(p))
		}
	}
	if p := evaluated.ClientCAProblem; p != nil {
		s.Clients = errorOf(*p)
	}
	return s
}

func errorOf(p frontproxy.Problem) error {
	text := p.String()
	if p.Weakness != "" {
		text += ", or accept it with --front-proxy-tolerate=" + p.Weakness
	}
	return errors.New(text)
}

// Trust follows the ConfigMap. The library follows it too, but keeps its last content when the
// ConfigMap is deleted or does not parse (https://issues.k8s.io/140130), and accepts weak trust.
type Trust struct {
	informer cache.SharedIndexInformer
	status   atomic.Pointer[Status]
}

// NewTrust returns a Trust that follows the ConfigMap once Run is called.
func NewTrust(client kubernetes.Interface, tolerated sets.Set[string]) (*Trust, error) {
	t := &Trust{informer: coreinformers.NewFilteredConfigMapInformer(client, frontproxy.Namespace, 0, cache.Indexers{},
		func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField,
				frontproxy.ConfigMapName).String()
		})}
	unread := fmt.Errorf("ConfigMap %s/%s has not been read yet", frontproxy.Namespace, frontproxy.ConfigMapName)
	t.status.Store(&Status{unread, unread})
	evaluate := func(cm *corev1.ConfigMap) {
		evaluated := frontproxy.Evaluate(cm)
		s := statusOf(evaluated, tolerated)
		t.status.Store(&s)
		if s.FrontProxy != nil {
			klog.ErrorS(s.FrontProxy, "Rejecting all front-proxy identities")
		}
		if other := otherHeaders(evaluated); len(other) > 0 {
			klog.InfoS("WARNING: the front proxy's headers have unusual names; such a kube-apiserver forwards the usual "+
				"headers of its clients (https://issues.k8s.io/119631), so no server behind it may trust them", "keys",
				strings.Join(other, ", "))
		}
		if len(tolerated) > 0 {
			klog.InfoS("WARNING: accepting weak trust in the front proxy", "weaknesses",
				strings.Join(sets.List(tolerated), ", "))
		}
	}
	_, err := t.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { evaluate(obj.(*corev1.ConfigMap)) },
		UpdateFunc: func(_, obj any) { evaluate(obj.(*corev1.ConfigMap)) },
		DeleteFunc: func(any) { evaluate(nil) },
	})
	return t, err
}

// otherHeaders returns the keys of the ConfigMap whose headers differ from the default headers of
// kube-apiserver.
func otherHeaders(s frontproxy.Status) []string {
	var keys []string
	for _, header := range []struct {
		key   string
		names []string
		usual string
	}{
		{frontproxy.ExtraHeaderPrefixesKey, s.ExtraHeaderPrefixes, "X-Remote-Extra-"},
		{frontproxy.GroupHeadersKey, s.GroupHeaders, "X-Remote-Group"},
		{frontproxy.UsernameHeadersKey, s.UsernameHeaders, "X-Remote-User"},
	} {
		if len(header.names) > 0 && !slices.Equal(header.names, []string{header.usual}) {
			keys = append(keys, header.key)
		}
	}
	return keys
}

// Run follows the ConfigMap until the context ends.
func (t *Trust) Run(ctx context.Context) { t.informer.Run(ctx.Done()) }

// Status returns the evaluation of the ConfigMap as last observed.
func (t *Trust) Status() Status { return *t.status.Load() }
