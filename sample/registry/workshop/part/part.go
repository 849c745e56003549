// SPDX-License-Identifier: Apache-2.0

// Package part defines the kind Part. It shows a kind whose objects are not stored in etcd.
package part

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/pkg/registry"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// Kind returns the kind Part with the objects of a list.
func Kind(list func(context.Context) iter.Seq2[*v1.Part, error]) registry.Kind[*v1.Part] {
	return registry.Kind[*v1.Part]{
		ClusterScoped: true,
		Categories:    []string{"workshop"},
		Columns: []registry.Column[*v1.Part]{
			{Name: "Quantity", Type: "integer", Description: "Number of pieces in stock",
				Value: func(p *v1.Part) any { return p.Status.Quantity }},
			{Name: "Shelf", Description: "Place in the workshop", Value: func(p *v1.Part) any { return p.Status.Shelf }},
		},
		SelectableFields: map[string]func(*v1.Part) string{
			"status.shelf": func(p *v1.Part) string { return p.Status.Shelf },
		},
		Source: registry.Cached[*v1.Part]{List: list, Interval: 10 * time.Second},
	}
}

// File is a JSON file with the parts in stock, such as a file of a mounted ConfigMap.
type File struct{ path string }

// AddFlags implements apiserver.Flags.
func (f *File) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.path, "parts-file", f.path, "JSON file with the parts in stock, a list of objects with the fields "+
		"name, quantity and shelf. The server reads it every 10 seconds. Default: an example.")
}

// Validate implements apiserver.Flags.
func (*File) Validate() []error { return nil }

// List yields the parts in the file.
func (f *File) List(context.Context) iter.Seq2[*v1.Part, error] {
	return func(yield func(*v1.Part, error) bool) {
		entries, err := f.read()
		if err != nil {
			yield(nil, err)
			return
		}
		for _, e := range entries {
			part := &v1.Part{ObjectMeta: metav1.ObjectMeta{Name: e.Name},
				Status: v1.PartStatus{Quantity: e.Quantity, Shelf: e.Shelf}}
			if !yield(part, nil) {
				return
			}
		}
	}
}

type entry struct {
	Name     string `json:"name"`
	Quantity int32  `json:"quantity"`
	Shelf    string `json:"shelf"`
}

//go:embed stock.json
var example []byte

func (f *File) read() ([]entry, error) {
	data := example
	if f.path != "" {
		var err error
		if data, err = os.ReadFile(f.path); err != nil {
			return nil, fmt.Errorf("read --parts-file: %w", err)
		}
	}
	var entries []entry
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, fmt.Errorf("parse --parts-file %q: %w", f.path, err)
	}
	return entries, nil
}
