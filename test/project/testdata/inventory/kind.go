// Package inventoryitem describes the kind InventoryItem, whose objects an inventory system has.
package inventoryitem

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net"
	"net/http"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/pkg/registry"

	v1 "git.example.org/platform/dbaas/apis/dbaas/v1"
)

// Inventory is the inventory system, which serves HTTP at a socket.
type Inventory struct{ socket string }

func (i *Inventory) AddFlags(fs *pflag.FlagSet) { fs.StringVar(&i.socket, "inventory", "", "Socket.") }
func (i *Inventory) Validate() []error          { return nil }

// Kind describes what the server does for the kind.
func (i *Inventory) Kind() registry.Kind[*v1.InventoryItem] {
	return registry.Kind[*v1.InventoryItem]{
		Columns: []registry.Column[*v1.InventoryItem]{
			{Name: "Count", Type: "integer", Value: func(o *v1.InventoryItem) any { return o.Spec.Count }},
		},
		Source: registry.Cached[*v1.InventoryItem]{List: i.list, Interval: time.Second, MaxAge: 5 * time.Second},
	}
}

func (i *Inventory) list(ctx context.Context) iter.Seq2[*v1.InventoryItem, error] {
	return func(yield func(*v1.InventoryItem, error) bool) {
		items, err := i.get(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for name, count := range items {
			item := &v1.InventoryItem{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
			if item.Spec.Count = count; !yield(item, nil) {
				return
			}
		}
	}
}

func (i *Inventory) get(ctx context.Context) (items map[string]int64, err error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", i.socket)
		}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://inventory/items", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("inventory: %s", resp.Status)
	}
	return items, json.NewDecoder(resp.Body).Decode(&items)
}
