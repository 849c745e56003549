// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"strings"

	"github.com/munnerz/goautoneg"
	"go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	sigsyaml "sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/fairness"
	"example.com/extension-apiserver/internal/patch"
)

// maxYAML is the maximum size in bytes of a body that the YAML parser may read. The parser uses up
// to 140 bytes of memory for a byte of "a,a,a": 420 MiB for the 3 MiB that the library allows. It
// also reads JSON in server-side apply requests. etcd accepts objects of up to 1.5 MiB.
const maxYAML = 768 << 10

// maxOnlyYAML is the maximum size in bytes of a body that is not JSON. The library parses it
// several times, and checkNodes parses it to find aliases. Each pass takes 0.25 s for 1 MiB.
const maxOnlyYAML = 512 << 10

// Limits for responses in YAML.
const (
	// maxYAMLResponse is the maximum size in bytes of the JSON that is converted to YAML.
	// yamlResponseByteCost is the memory cost of each byte.
	maxYAMLResponse      = 512 << 10
	yamlResponseByteCost = 170
	// maxYAMLDepth is the maximum number of levels. YAML indents each line by two spaces per
	// level.
	maxYAMLDepth = 100
	// userYAML and allYAML are the maximum numbers of responses that are converted at a time, per
	// user and in total.
	userYAML, allYAML = 8, 32
)

// writes contains the verbs of the requests whose bodies the library decodes.
var writes = sets.New("create", "update", "patch", "delete", "deletecollection")

// WithYAMLLimit limits decoded YAML to 512 KiB without aliases, or to 768 KiB if it is JSON, which
// is decoded as JSON except in a patch. Other bodies get 413 or 400. It must follow authorization,
// and reads only bodies that a handler decodes. With aliases, a document of 1.5 MB can expand to
// 500 MB; kubectl resolves aliases itself (CVE-2019-11253).
func WithYAMLLimit(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		// Every media type that the library may decode as YAML contains the word yaml.
		if !ok || !info.IsResourceRequest || !writes.Has(info.Verb) ||
			!strings.Contains(strings.ToLower(req.Header.Get("Content-Type")), "yaml") {
			handler.ServeHTTP(w, req)
			return
		}
		body, err := readYAML(req)
		if err == nil {
			err = checkNodes(body)
		}
		if err != nil {
			responsewriters.RespondWithError(w, req, err, serializer)
			return
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		// The library rejects other types that it may not decode.
		if mediaType, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type")); mediaType == runtime.ContentTypeYAML &&
			info.Verb != "patch" && json.Valid(body) {
			req = req.Clone(req.Context())
			req.Header.Set("Content-Type", runtime.ContentTypeJSON)
			req.Body = withUTF8(req.Body)
		}
		handler.ServeHTTP(w, req)
	})
}

// yamlReads contains the verbs of reads whose responses WithYAMLResponseLimit limits.
var yamlReads = sets.New("get", "list")

// WithYAMLResponseLimit limits responses in YAML to 512 KiB of JSON, because the library parses
// the JSON with its YAML parser, which takes 1.7 GiB for 10 MiB. A longer response to a read is
// replaced by 406. A longer response to a write stays JSON, since the write is done. The filter
// makes the library respond with JSON wherever the client accepts YAML. kubectl requests JSON and
// writes YAML itself.
func (m *Memory) WithYAMLResponseLimit(handler http.Handler,
	streams func(*genericapirequest.RequestInfo) bool) http.Handler {
	serializer := m.serializer
	waiting := fairness.New(fairness.Limits{PerKey: userYAML, Total: allYAML, Reserved: 1})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		accept := req.Header.Get("Accept")
		withoutYAML, yaml := jsonForYAML(accept)
		if !ok || !info.IsResourceRequest || !yamlReads.Has(info.Verb) && !writes.Has(info.Verb) || !yaml ||
			streams(info) {
			handler.ServeHTTP(w, req)
			return
		}
		asJSON := req.Clone(req.Context())
		asJSON.Header.Set("Accept", withoutYAML)
		options, ok := negotiation.NegotiateMediaTypeOptions(accept, serializer.SupportedMediaTypes(), anyMediaType{})
		if !ok || options.Accepted.MediaType != runtime.ContentTypeYAML {
			handler.ServeHTTP(w, asJSON)
			return
		}
		asJSON.Header.Del("Accept-Encoding")
		leave, err := waiting.Take(req.Context(), userName(req))
		if err != nil {
			responsewriters.RespondWithError(w, asJSON, apierrors.NewTooManyRequests(
				"too many concurrent YAML responses; request JSON", 1), serializer)
			return
		}
		defer leave()
		response := &jsonResponse{header: http.Header{}, status: http.StatusOK, w: w, write: writes.Has(info.Verb)}
		handler.ServeHTTP(response, asJSON)
		switch {
		case response.passed:
			return
		case response.body.Len() == 0 && !response.tooLong:
			_ = response.copyUnchanged()
			return
		}
		switch err := response.writeYAML(req, w, m); {
		case err == nil:
		case response.write:
			_ = response.copyUnchanged() // the write is done
		default:
			asJSON.Header.Set("Accept", runtime.ContentTypeJSON)
			responsewriters.RespondWithError(w, asJSON, err, serializer)
		}
	})
}

// jsonForYAML returns the Accept header with YAML replaced by JSON, and whether it contained YAML.
// It parses the header as the library does.
func jsonForYAML(accept string) (withoutYAML string, yaml bool) {
	var clauses []string
	for _, clause := range goautoneg.ParseAccept(accept) {
		if clause.Type+"/"+clause.SubType == runtime.ContentTypeYAML {
			yaml, clause.SubType = true, "json"
		}
		words := []string{clause.Type + "/" + clause.SubType, fmt.Sprintf("q=%g", clause.Q)}
		for name, value := range clause.Params {
			words = append(words, name+"="+value)
		}
		clauses = append(clauses, strings.Join(words, ";"))
	}
	return strings.Join(clauses, ","), yaml
}

// jsonResponse buffers a response of up to maxYAMLResponse bytes.
type jsonResponse struct {
	header  http.Header
	status  int
	body    bytes.Buffer
	tooLong bool
	// w receives the response unchanged if it is not JSON, or if it is a longer one to a write.
	w      http.ResponseWriter
	write  bool
	passed bool
}

func (a *jsonResponse) Header() http.Header    { return a.header }
func (a *jsonResponse) WriteHeader(status int) { a.status = status }

func (a *jsonResponse) Write(p []byte) (int, error) {
	isJSON := strings.HasPrefix(a.header.Get("Content-Type"), runtime.ContentTypeJSON)
	switch a.tooLong = a.tooLong || a.body.Len()+len(p) > maxYAMLResponse; {
	case a.passed:
		return a.w.Write(p)
	case !isJSON, a.tooLong && a.write:
		if err := a.copyUnchanged(); err != nil {
			return 0, err
		}
		return a.w.Write(p)
	case a.tooLong:
		return 0, errors.New("response is too large for YAML")
	}
	return a.body.Write(p)
}

// copyUnchanged writes the buffered part of the response unchanged.
func (a *jsonResponse) copyUnchanged() error {
	a.passed = true
	maps.Copy(a.w.Header(), a.header)
	a.w.WriteHeader(a.status)
	_, err := a.w.Write(a.body.Bytes())
	a.body = bytes.Buffer{}
	return err
}

// writeYAML writes the response to w as YAML, or returns an error before it has written anything.
func (a *jsonResponse) writeYAML(req *http.Request, w http.ResponseWriter, m *Memory) error {
	if a.tooLong {
		return notAcceptable(
			fmt.Sprintf("the response has more than %d bytes as JSON, which is too large for YAML; request JSON, or "+
				"a list with a limit",
				maxYAMLResponse))
	}
	if isTooDeep(a.body.Bytes()) {
		return notAcceptable(fmt.Sprintf(
			"the response is nested more than %d levels deep, which is too deep for YAML; request JSON", maxYAMLDepth))
	}
	release, err := m.take(req, int64(a.body.Len())*yamlResponseByteCost)
	if err != nil {
		return err
	}
	data, err := sigsyaml.JSONToYAML(a.body.Bytes())
	release()
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	maps.Copy(w.Header(), a.header)
	w.Header().Set("Content-Type", runtime.ContentTypeYAML)
	w.Header().Del("Content-Length")
	w.WriteHeader(a.status)
	_, _ = w.Write(data)
	return nil
}

func notAcceptable(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: message,
	}}
}

// isTooDeep reports whether JSON has more than maxYAMLDepth levels, or strings with as many
// brackets.
func isTooDeep(body []byte) bool {
	depth := 0
	for _, c := range body {
		switch c {
		case '[', '{':
			if depth++; depth > maxYAMLDepth {
				return true
			}
		case ']', '}':
			depth--
		}
	}
	return false
}

// anyMediaType accepts all parameters that some resource may accept, such as ";as=Table".
type anyMediaType struct{}

func (anyMediaType) AllowsMediaTypeTransform(string, string, *schema.GroupVersionKind) bool {
	return true
}
func (anyMediaType) AllowsServerVersion(string) bool { return true }
func (anyMediaType) AllowsStreamSchema(string) bool  { return true }

// readYAML returns the body of a request, or an error with status 413 if it is too large.
func readYAML(req *http.Request) ([]byte, error) {
	tooLarge := apierrors.NewRequestEntityTooLargeError(
		fmt.Sprintf("limit for YAML, and for server-side apply, is %d bytes", maxYAML))
	if req.ContentLength > maxYAML {
		return nil, tooLarge
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, maxYAML+1))
	switch {
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("read the body: %v", err))
	case len(body) > maxYAML:
		return nil, tooLarge
	case len(body) > maxOnlyYAML && !json.Valid(body):
		return nil, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("limit for YAML that is not JSON is %d bytes", maxOnlyYAML))
	}
	return body, nil
}

// checkNodes returns an error with status 400 for a document that has or may have aliases or
// binary data, and with status 413 for lists that are too long. The library would store binary
// data as text, with the character U+FFFD for each byte that is not UTF-8.
func checkNodes(body []byte) error {
	// kubectl sends JSON. Without these characters, a document has no alias, no tag and no long
	// list.
	aliases := bytes.ContainsRune(body, '&') && bytes.ContainsRune(body, '*')
	// elements counts those of all lists and mappings.
	elements := bytes.Count(body, []byte(",")) + bytes.Count(body, []byte("-")) + bytes.Count(body, []byte(":"))
	short := elements < patch.MaxOwners && len(body) < maxFieldPath
	if !aliases && !bytes.ContainsRune(body, '!') && short || json.Valid(body) {
		return nil
	}
	var c bodyContent
	var document yaml.Node
	if err := yaml.Unmarshal(body, &document); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("parse YAML: %v", err))
	}
	type field struct {
		*yaml.Node
		path int // length of the names that lead to it
	}
	nodes := []field{{Node: &document}}
	for len(nodes) > 0 {
		node := nodes[len(nodes)-1]
		nodes = nodes[:len(nodes)-1]
		if node.Kind == yaml.AliasNode {
			return apierrors.NewBadRequest(
				fmt.Sprintf("line %d: YAML aliases are not accepted; write the values out, or send JSON", node.Line))
		}
		if node.ShortTag() == "!!binary" {
			return apierrors.NewBadRequest(
				fmt.Sprintf("line %d: the YAML tag !!binary is not accepted; write the text out", node.Line))
		}
		c.values++
		switch node.Kind {
		case yaml.SequenceNode:
			c.addList(len(node.Content))
		case yaml.MappingNode:
			c.addFields(len(node.Content) / 2)
			c.addOwners(node.Node)
		}
		c.fieldPath = max(c.fieldPath, node.path)
		name := 0
		for i, child := range node.Content {
			nodes = append(nodes, field{child, node.path + name})
			if name = 0; node.Kind == yaml.MappingNode && i%2 == 0 {
				name = len(child.Value)
			}
		}
	}
	return c.check()
}
