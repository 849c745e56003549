// SPDX-License-Identifier: Apache-2.0

// Command sourceserver serves three kinds whose objects are not in etcd: Parts have a Cached source,
// Widgets a Live source, and Gadgets a hand-written storage.
package main

import (
	"context"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/pkg/command"
	"example.com/extension-apiserver/pkg/registry"
	"example.com/extension-apiserver/sample"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/registry/workshop/part"
)

// names are the names of the objects of each kind, in the namespace default.
var names = []string{"first", "second"}

func main() {
	api := sample.API()
	api.Groups[0].Kinds = []registry.NewStorage{
		part.Kind((&part.File{}).List).NewStorage,
		registry.Kind[*v1.Widget]{Source: registry.Live[*v1.Widget]{Get: get, List: list}}.NewStorage,
		newStorage,
	}
	api.Admission, api.Flags, api.PostStart, api.NamespacePermissions = nil, nil, nil, nil
	os.Exit(command.Run(api))
}

func widget(name string) *v1.Widget {
	return &v1.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1.WidgetSpec{Model: name}}
}

func get(_ context.Context, namespace, name string) (*v1.Widget, error) {
	for _, known := range names {
		if namespace == "default" && name == known {
			return widget(name), nil
		}
	}
	return nil, nil
}

func list(_ context.Context, options registry.LiveListOptions) (page []*v1.Widget, next string, err error) {
	left := names
	if options.Namespace != "" && options.Namespace != "default" {
		left = nil
	}
	for ; len(left) > 0 && options.Continue != "" && left[0] != options.Continue; left = left[1:] {
		if len(left) == 1 {
			return nil, "", fmt.Errorf("unknown page %q", options.Continue)
		}
	}
	for _, name := range left {
		if options.Limit > 0 && int64(len(page)) == options.Limit {
			return page, name, nil
		}
		page = append(page, widget(name))
	}
	return page, "", nil
}
