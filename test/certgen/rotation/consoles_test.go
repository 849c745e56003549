// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/test/clients/console"
)

// keptOpen is how many consoles stay open through each kube-apiserver, so that both extension API
// servers probably have some.
const keptOpen = 2

// consoles are upgraded connections through each kube-apiserver: some that stay open from before
// the first rotation, and new ones. The server closes a console that is idle for four hours, or
// that sends a line of more than 4 KiB. It limits neither their number nor their duration, so its
// own limits close none here.
type consoles struct {
	t             *testing.T
	configs       []*rest.Config
	widget        string
	open          []*console.Console
	opened, lines int
}

func openConsoles(t *testing.T, e *envtest.Environment) *consoles {
	t.Helper()
	configs, err := e.AdminConfigs()
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(configs[0])
	if err != nil {
		t.Fatal(err)
	}
	c := &consoles{t: t, configs: configs, widget: "rotated"}
	widgets := schema.GroupVersionResource{Group: "workshop.example.com", Version: "v1", Resource: "widgets"}
	if _, err := client.Resource(widgets).Namespace(metav1.NamespaceDefault).Create(t.Context(),
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "workshop.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": c.widget},
			"spec": map[string]any{"model": "pendulum"},
		}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range keptOpen {
		for _, config := range configs {
			c.open = append(c.open, console.Open(t.Context(), t, config, metav1.NamespaceDefault, c.widget))
		}
	}
	c.use("before")
	return c
}

// use sends a line through each open console, which must come back. It also opens, uses and closes
// another one through each kube-apiserver.
func (c *consoles) use(step string) {
	c.t.Helper()
	for i, open := range c.open {
		open.Echo(c.t, "open since before, in "+step+" through "+c.configs[i%len(c.configs)].Host)
		c.lines++
	}
	for _, config := range c.configs {
		opened := console.Open(c.t.Context(), c.t, config, metav1.NamespaceDefault, c.widget)
		opened.Echo(c.t, "opened in "+step+" through "+config.Host)
		c.lines++
		c.close(opened, "opened in "+step)
		c.opened++
	}
}

// close sends exit; the server must close the console with success.
func (c *consoles) close(open *console.Console, which string) {
	c.t.Helper()
	open.Say(c.t, "exit")
	if err := open.End(c.t); err != nil {
		c.t.Errorf("console %s: after exit: %v, want success", which, err)
	}
}

// end uses and closes the consoles that stayed open. Their front-proxy certificate and its CA are
// no longer trusted: a user is authenticated once, when the request arrives.
func (c *consoles) end() {
	c.t.Helper()
	c.use("the end")
	for _, open := range c.open {
		c.close(open, "open since before")
	}
	c.t.Logf("%d consoles stayed open, %d were opened and closed meanwhile, %d lines came back", len(c.open),
		c.opened, c.lines)
}
