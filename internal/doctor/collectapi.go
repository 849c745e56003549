// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// get sends a GET to kube-apiserver and returns the status and the body. An error status is an
// error.
func (c *collector) get(ctx context.Context, path, accept string) (int, []byte, error) {
	request := c.core.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", accept)
	return do(ctx, request)
}

// do sends a request once.
func do(ctx context.Context, request *rest.Request) (status int, body []byte, err error) {
	result := request.MaxRetries(0).Do(ctx).StatusCode(&status)
	body, err = result.Raw()
	return status, body, err
}

func (c *collector) getJSON(ctx context.Context, path, accept string, into any) error {
	_, body, err := c.get(ctx, path, accept)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("parse response of %s: %w", path, err)
	}
	return nil
}

// responseReads returns a function for each APIService.
func (c *collector) responseReads() []func(context.Context) {
	var out []func(context.Context)
	for _, a := range c.facts.APIServices {
		out = append(out, func(ctx context.Context) {
			r := c.request(ctx, a)
			c.set(func(f *Facts) { f.Responses[a.Name] = r })
		})
	}
	return out
}

// request requests the resources of the group and version, which kube-apiserver proxies to the
// server.
func (c *collector) request(ctx context.Context, a apiregistrationv1.APIService) Response {
	path := "/apis/" + groupVersionOf(a)
	began := time.Now()
	status, body, err := c.get(ctx, path, "application/json")
	r := Response{Status: status, Took: time.Since(began)}
	if err != nil {
		r.Text = responseText(body, err)
		return r
	}
	c.set(func(*Facts) {
		if skew, ok := c.skews[path]; ok {
			r.Skew = &skew
		}
	})
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		r.Text = fmt.Sprintf("parse response of %s: %v", path, err)
		return r
	}
	r.Resources = list.APIResources
	if slices.ContainsFunc(r.Resources, func(r metav1.APIResource) bool { return r.Name == "identityreviews" }) {
		r.Review = c.review(ctx, a)
	}
	return r
}

// review creates an IdentityReview, which is stored nowhere, and returns the error message. A
// server of this kit rejects it while it lacks permissions, and the message names them.
func (c *collector) review(ctx context.Context, a apiregistrationv1.APIService) string {
	body := fmt.Appendf(nil, `{"apiVersion": %q, "kind": "IdentityReview"}`, groupVersionOf(a))
	status, response, err := do(ctx, c.core.Discovery().RESTClient().Post().
		AbsPath("/apis", groupVersionOf(a), "identityreviews").SetHeader("Content-Type", "application/json").
		SetHeader("Accept", "application/json").Body(body))
	if err == nil || status == http.StatusForbidden { // the user may not create it
		return ""
	}
	return responseText(response, err)
}

// responseText returns the message in the body of an error response: that of a Status, or plain
// text, which kube-apiserver sends if it cannot reach a server. Without a body, it returns the
// error.
func responseText(body []byte, err error) string {
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		return status.Message
	}
	const longest = 1 << 10
	if text := strings.TrimSpace(string(body[:min(len(body), longest)])); text != "" {
		return text
	}
	return err.Error()
}

// readDiscovery reads the aggregated discovery of all groups.
func (c *collector) readDiscovery(ctx context.Context) {
	var all apidiscoveryv2.APIGroupDiscoveryList
	for _, path := range []string{"/api", "/apis"} {
		var list apidiscoveryv2.APIGroupDiscoveryList
		err := c.getJSON(ctx, path, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", &list)
		if err == nil && list.Kind != "APIGroupDiscoveryList" {
			err = fmt.Errorf("parse response of %s: the kind is %q, want APIGroupDiscoveryList", path, list.Kind)
		}
		if c.failed("discovery", "get "+path, err) {
			return
		}
		all.Items = append(all.Items, list.Items...)
	}
	c.set(func(f *Facts) { f.Discovery = &all })
}

// readOpenAPI reads the index of OpenAPI v3 and the document of each available APIService.
func (c *collector) readOpenAPI(ctx context.Context) {
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if c.failed("openapi", "get /openapi/v3", c.getJSON(ctx, "/openapi/v3", "application/json", &index)) {
		return
	}
	documents := map[string]Document{}
	for _, a := range c.facts.APIServices {
		if _, listed := index.Paths["apis/"+groupVersionOf(a)]; listed && isAvailable(a) {
			documents[a.Name] = c.document(ctx, "/openapi/v3/apis/"+groupVersionOf(a))
		}
	}
	c.set(func(f *Facts) { f.OpenAPI = documents })
}

var schemaReference = regexp.MustCompile(`"\$ref":\s*"#/components/schemas/([^"]+)"`)

// document reads an OpenAPI v3 document.
func (c *collector) document(ctx context.Context, path string) Document {
	_, body, err := c.get(ctx, path, "application/json")
	if err != nil {
		return Document{Err: responseText(body, err)}
	}
	var content struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(body, &content); err != nil {
		return Document{Err: fmt.Sprintf("parse response of %s: %v", path, err)}
	}
	var d Document
	for _, match := range schemaReference.FindAllSubmatch(body, -1) {
		name := string(bytes.Clone(match[1]))
		if _, ok := content.Components.Schemas[name]; !ok && !slices.Contains(d.Dangling, name) {
			d.Dangling = append(d.Dangling, name)
		}
	}
	return d
}

// readCRD reads the served versions of a CustomResourceDefinition.
func (c *collector) readCRD(ctx context.Context, name string) (CRD, error) {
	var object struct {
		Spec struct {
			Group    string `json:"group"`
			Versions []struct {
				Name   string `json:"name"`
				Served bool   `json:"served"`
			} `json:"versions"`
		} `json:"spec"`
	}
	path := "/apis/" + crdResource.GroupVersion().String() + "/" + crdResource.Resource + "/" + name
	if err := c.getJSON(ctx, path, "application/json", &object); err != nil {
		return CRD{}, err
	}
	crd := CRD{Name: name, Group: object.Spec.Group}
	for _, v := range object.Spec.Versions {
		if v.Served {
			crd.Versions = append(crd.Versions, v.Name)
		}
	}
	return crd, nil
}
