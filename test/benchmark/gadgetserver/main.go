// SPDX-License-Identifier: Apache-2.0

// Command gadgetserver serves the sample API. With the environment variable OBJECTS, the gadgets are
// not in etcd: a source has so many of them, and changes 100 of them a second.
package main

import (
	"context"
	"fmt"
	"iter"
	"os"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/pkg/command"
	"example.com/extension-apiserver/pkg/registry"
	"example.com/extension-apiserver/sample"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/registry/workshop/gadget"
	"example.com/extension-apiserver/sample/registry/workshop/widget"
)

// between is the time between two changes.
const between = 10 * time.Millisecond

func main() {
	api := sample.API()
	if objects, err := strconv.Atoi(os.Getenv("OBJECTS")); err == nil {
		kind := gadget.Kind
		kind.Source = registry.Cached[*v1.Gadget]{List: list(objects, time.Now()), Interval: time.Second}
		api.Groups[0].Kinds = []registry.NewStorage{kind.NewStorage, widget.Kind.NewStorage}
	}
	os.Exit(command.Run(api))
}

// list returns a source. The purpose of a gadget is the time of its last change in nanoseconds.
func list(objects int, began time.Time) func(context.Context) iter.Seq2[*v1.Gadget, error] {
	return func(context.Context) iter.Seq2[*v1.Gadget, error] {
		return func(yield func(*v1.Gadget, error) bool) {
			changes := int(time.Since(began) / between)
			for i := range objects {
				// The last change of object i is the last number up to changes that leaves the rest i.
				last := max(0, changes-(changes-i+objects)%objects)
				g := &v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("gadget-%d", i)},
					Spec: v1.GadgetSpec{Purpose: strconv.FormatInt(began.Add(time.Duration(last)*between).UnixNano(), 10)}}
				if !yield(g, nil) {
					return
				}
			}
		}
	}
}
