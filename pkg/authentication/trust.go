// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"bytes"
	"context"
	"encoding/json"
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
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// TrustName is the ConfigMap in kube-system in which kube-apiserver publishes whom an extension API server may trust.
const TrustName = "extension-apiserver-authentication"

// What makes the trust in the front proxy weak, and is refused unless it is tolerated by name.
const (
	// SharedCA: the CA of the front proxy also signs users' certificates.
	SharedCA = "SharedCA"
	// AnyName: every certificate of the front proxy's CA is one of the front proxy.
	AnyName = "AnyName"
)

// Weaknesses are the names of what can be tolerated.
var Weaknesses = []string{AnyName, SharedCA}

// Verdict is what a state of the ConfigMap allows; nil means that it does.
type Verdict struct {
	// Proxy is why nobody is taken for the front proxy.
	Proxy error
	// Clients is why no client certificate of a user is accepted.
	Clients error
}

// Judge says what the ConfigMap allows, nil standing for one that does not exist.
func Judge(cm *corev1.ConfigMap, tolerated sets.Set[string]) Verdict {
	if cm == nil {
		gone := fmt.Errorf("ConfigMap %s/%s does not exist: kube-apiserver trusts nobody; it makes the ConfigMap again when it restarts at the latest",
			metav1.NamespaceSystem, TrustName)
		return Verdict{gone, gone}
	}
	var v Verdict
	const proxyKey = "requestheader-client-ca-file"
	proxyCA, err := certutil.ParseCertsPEM([]byte(cm.Data[proxyKey]))
	switch {
	case strings.TrimSpace(cm.Data[proxyKey]) == "":
		v.Proxy = fmt.Errorf("ConfigMap %s/%s has no %s: the aggregation layer of this cluster is not configured; "+
			"set kube-apiserver's --requestheader-client-ca-file", metav1.NamespaceSystem, TrustName, proxyKey)
	case err != nil:
		v.Proxy = fmt.Errorf("%s in ConfigMap %s/%s, expected certificates in PEM: %w", proxyKey, metav1.NamespaceSystem, TrustName, err)
	}
	clientCA, err := certutil.ParseCertsPEM([]byte(cm.Data["client-ca-file"]))
	if err != nil {
		v.Clients = fmt.Errorf("client-ca-file in ConfigMap %s/%s: %w", metav1.NamespaceSystem, TrustName, err)
	}
	var names, headers []string
	for key, into := range map[string]*[]string{"requestheader-allowed-names": &names, "requestheader-username-headers": &headers} {
		if err := json.Unmarshal([]byte(cm.Data[key]), into); err != nil && cm.Data[key] != "" {
			v.Proxy = errors.Join(v.Proxy, fmt.Errorf("%s in ConfigMap %s/%s: expected a list of strings in JSON: %w", key, metav1.NamespaceSystem, TrustName, err))
		}
	}
	if len(headers) == 0 {
		v.Proxy = errors.Join(v.Proxy, fmt.Errorf("requestheader-username-headers in ConfigMap %s/%s names no header", metav1.NamespaceSystem, TrustName))
	}
	if len(names) == 0 && !tolerated.Has(AnyName) {
		v.Proxy = errors.Join(v.Proxy, fmt.Errorf("requestheader-allowed-names in ConfigMap %s/%s is empty: every certificate of the front proxy's CA may claim to be anybody; "+
			"set kube-apiserver's --requestheader-allowed-names, or accept it with --front-proxy-tolerate=%s", metav1.NamespaceSystem, TrustName, AnyName))
	}
	for _, a := range proxyCA {
		for _, b := range clientCA {
			if bytes.Equal(a.RawSubjectPublicKeyInfo, b.RawSubjectPublicKeyInfo) && !tolerated.Has(SharedCA) {
				v.Proxy = errors.Join(v.Proxy, fmt.Errorf("the front proxy and the users of the cluster share the CA %q (ConfigMap %s/%s): a user's certificate with the right name "+
					"may claim to be anybody; give kube-apiserver's --requestheader-client-ca-file a CA of its own, or accept it with --front-proxy-tolerate=%s",
					a.Subject, metav1.NamespaceSystem, TrustName, SharedCA))
			}
		}
	}
	return v
}

// Trust follows the ConfigMap. The library follows it too, but keeps what it read last when the ConfigMap is deleted or becomes
// unreadable (https://issues.k8s.io/140130), and takes every form of it.
type Trust struct {
	informer cache.SharedIndexInformer
	verdict  atomic.Pointer[Verdict]
}

// NewTrust follows the ConfigMap from when Run is called.
func NewTrust(client kubernetes.Interface, tolerated sets.Set[string]) (*Trust, error) {
	t := &Trust{informer: coreinformers.NewFilteredConfigMapInformer(client, metav1.NamespaceSystem, 0, cache.Indexers{}, func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, TrustName).String()
	})}
	unread := fmt.Errorf("ConfigMap %s/%s was not read yet", metav1.NamespaceSystem, TrustName)
	t.verdict.Store(&Verdict{unread, unread})
	judge := func(cm *corev1.ConfigMap) {
		v := Judge(cm, tolerated)
		t.verdict.Store(&v)
		if v.Proxy != nil {
			klog.ErrorS(v.Proxy, "Nobody is taken for the front proxy")
		}
		if other := otherHeaders(cm); len(other) > 0 {
			klog.InfoS("WARNING: the front proxy's headers have other names than usual; such a kube-apiserver passes the usual ones of its clients on "+
				"(https://issues.k8s.io/119631), so nothing behind it may believe those", "keys", strings.Join(other, ", "))
		}
		if len(tolerated) > 0 {
			klog.InfoS("WARNING: weak trust in the front proxy is tolerated", "weaknesses", strings.Join(sets.List(tolerated), ", "))
		}
	}
	_, err := t.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { judge(obj.(*corev1.ConfigMap)) },
		UpdateFunc: func(_, obj any) { judge(obj.(*corev1.ConfigMap)) },
		DeleteFunc: func(any) { judge(nil) },
	})
	return t, err
}

// otherHeaders returns the keys of the ConfigMap that do not name the headers that every kube-apiserver has by default.
func otherHeaders(cm *corev1.ConfigMap) []string {
	var keys []string
	for key, usual := range map[string]string{
		"requestheader-username-headers": "X-Remote-User", "requestheader-group-headers": "X-Remote-Group", "requestheader-extra-headers-prefix": "X-Remote-Extra-",
	} {
		var names []string
		if cm != nil && json.Unmarshal([]byte(cm.Data[key]), &names) == nil && !slices.Equal(names, []string{usual}) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Run follows until the context ends.
func (t *Trust) Run(ctx context.Context) { t.informer.Run(ctx.Done()) }

// Verdict is that of the state that was seen last.
func (t *Trust) Verdict() Verdict { return *t.verdict.Load() }
