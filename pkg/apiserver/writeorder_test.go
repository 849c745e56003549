// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"example.com/extension-apiserver/pkg/registry"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// calls are the functions of a kind, its source and an admission plugin that a request has called.
// The server calls them one after the other.
type calls struct{ names []string }

func (c *calls) add(name string) { c.names = append(c.names, name) }

// record sets the functions of a kind. Authorize rejects requests of the user "eve".
func (c *calls) record(kind *registry.Kind[*v1.Gadget]) {
	kind.PrepareForCreate = func(context.Context, *v1.Gadget) { c.add("PrepareForCreate") }
	kind.PrepareForUpdate = func(_ context.Context, _, _ *v1.Gadget) { c.add("PrepareForUpdate") }
	kind.Authorize = func(ctx context.Context, _ authorizer.Authorizer, g, _ *v1.Gadget) error {
		c.add("Authorize")
		if caller, _ := genericapirequest.UserFrom(ctx); caller.GetName() == "eve" {
			return apierrors.NewForbidden(v1.Resource("gadgets"), g.Name, errors.New("eve may not"))
		}
		return nil
	}
	kind.Validate = func(_ context.Context, _, _ *v1.Gadget) field.ErrorList {
		c.add("Validate")
		return nil
	}
	kind.Warn = func(_ context.Context, _, _ *v1.Gadget) []string {
		c.add("Warn")
		return nil
	}
	kind.Source = registry.Cached[*v1.Gadget]{
		List: newShop(false, newGadget("first", "measure", nil)).list,
		Create: func(_ context.Context, g *v1.Gadget) (*v1.Gadget, error) {
			c.add("Create")
			return g, nil
		},
		Update: func(_ context.Context, g, _ *v1.Gadget) (*v1.Gadget, error) {
			c.add("Update")
			return g, nil
		},
		Version: func(g *v1.Gadget) string { return g.Spec.Purpose },
		Delete: func(context.Context, *v1.Gadget) error {
			c.add("Delete")
			return nil
		},
	}
}

// recordingPlugin is an admission plugin that records its calls.
type recordingPlugin struct {
	*admission.Handler
	calls *calls
}

func (p recordingPlugin) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	p.calls.add("Admit")
	return nil
}

func (p recordingPlugin) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	p.calls.add("Validate of the plugin")
	return nil
}

// TestWriteOrder checks the order in which the server calls the functions of a kind, as
// docs/build/validation-and-defaulting.md lists it. No function after Authorize runs if Authorize
// rejects the request, so these functions disclose nothing to the caller.
func TestWriteOrder(t *testing.T) {
	var called calls
	api := newShop(false).api(nil, called.record)
	api.Admission = []AdmissionPlugin{{Name: "Recording", New: func(*Runtime) (admission.Interface, error) {
		return recordingPlugin{admission.NewHandler(admission.Create, admission.Update, admission.Delete), &called}, nil
	}}}
	client := startOffline(t, api, func(*serverConfig) {}, nil).client("HTTP/2.0")
	t.Cleanup(client.CloseIdleConnections)
	created := []string{"Admit", "PrepareForCreate", "Authorize", "PrepareForCreate", "Validate", "Warn",
		"Validate of the plugin", "Create"}
	updated := []string{"Admit", "PrepareForUpdate", "Authorize", "PrepareForUpdate", "Validate", "Warn",
		"Validate of the plugin", "Update"}
	for _, tc := range []struct {
		name, user, request, body string
		code                      int
		want                      []string
	}{
		{"create", "ann", "POST ", gadgetJSON("second", "weigh", ""), 201, created},
		{"dry run", "ann", "POST ?dryRun=All", gadgetJSON("third", "weigh", ""), 201, created[:7]},
		{"create with an error of a tag", "ann", "POST ", gadgetJSON("third", "", ""), 422, created[:5]},
		{"create without permission", "eve", "POST ", gadgetJSON("third", "weigh", ""), 403, created[:3]},
		{"update", "ann", "PUT /first", gadgetJSON("first", "weigh", ""), 200, updated},
		{"merge patch", "ann", "MERGE /first", `{"spec":{"purpose":"count"}}`, 200, updated},
		{"outdated update", "ann", "PUT /first", gadgetJSON("first", "weigh", `,"resourceVersion":"1"`), 409,
			updated[:1]},
		{"update without permission", "eve", "PUT /first", gadgetJSON("first", "time", ""), 403, updated[:3]},
		{"apply of a new object", "ann", "APPLY /fourth?fieldManager=t", gadgetJSON("fourth", "weigh", ""), 201, created},
		{"delete", "eve", "DELETE /first", "", 200, []string{"Admit", "Validate of the plugin", "Delete"}},
	} {
		called.names = nil
		code, body, err := client.sendAs(t.Context(), tc.user, tc.request, tc.body)
		if err != nil || code != tc.code {
			t.Errorf("%s: got %d %v %s, want %d", tc.name, code, err, body, tc.code)
		}
		if diff := cmp.Diff(tc.want, called.names); diff != "" {
			t.Errorf("%s: calls (-want +got):\n%s", tc.name, diff)
		}
	}
}
