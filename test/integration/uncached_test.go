// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestEngineWithoutWatchCache: reads promise the same when the server asks etcd each time.
func TestEngineWithoutWatchCache(t *testing.T) {
	t.Parallel()
	e := envtest.New(t, envtest.Options{ExternalEtcd: true, ServerArgs: []string{"--watch-cache=false"}})
	k, r := readKinds[0], newReader(t, e)
	t.Run("list", func(t *testing.T) { testListSemantics(t, e, k, newNamespace(t, e)) })
	t.Run("watch-list", func(t *testing.T) { testWatchList(t, e, k, newNamespace(t, e)) })
	t.Run("expired", func(t *testing.T) {
		namespace := newNamespace(t, e)
		client := k.client(t, adminConfig(t, e), namespace)
		for _, name := range []string{"a", "b", "c", "d"} {
			k.create(t, client, name, nil)
		}
		page := mustList(t, client, metav1.ListOptions{Limit: 2})
		mustDelete(t, client, "c")
		patchLabel(t, client, "d", "changed", "yes")
		k.create(t, client, "e", nil)
		compactEtcd(t, e, mustList(t, client, metav1.ListOptions{}).GetResourceVersion())
		checkExpired(t, r, k.path(namespace), page)
		checkWatchExpired(t, r, k.path(namespace), page)
	})
}
