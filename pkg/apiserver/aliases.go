// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// limitAliases refuses a body in YAML that is longer than any body may be once its aliases are written out. The library limits how
// many values aliases may stand for, but not how long those are: with 1.5 MB of aliases of one text of 1000 bytes it makes a JSON
// of 500 MB, and 3 GB of memory.
func limitAliases(handler http.Handler, serializer runtime.NegotiatedSerializer, limit int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// Whatever the library may take for a type of YAML has the word in it.
		if !strings.Contains(strings.ToLower(req.Header.Get("Content-Type")), "yaml") {
			handler.ServeHTTP(w, req)
			return
		}
		// What could not be read, or is too long, the library finds again, and answers.
		body, _ := io.ReadAll(io.LimitReader(req.Body, limit+1))
		if err := checkAliases(body, limit); err != nil {
			gv := schema.GroupVersion{}
			if info, ok := genericapirequest.RequestInfoFrom(req.Context()); ok {
				gv = schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
			}
			responsewriters.ErrorNegotiated(err, serializer, gv, w, req)
			return
		}
		req.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), req.Body), req.Body}
		handler.ServeHTTP(w, req)
	})
}

// checkAliases returns the answer to a body that must not be decoded, nil if it may be.
func checkAliases(body []byte, limit int64) error {
	// Most YAML is JSON, as from kubectl apply, and without both signs there is no alias.
	if int64(len(body)) > limit || !bytes.ContainsRune(body, '&') || !bytes.ContainsRune(body, '*') || json.Valid(body) {
		return nil
	}
	var document yaml.Node
	if err := yaml.Unmarshal(body, &document); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("count what the aliases of the YAML stand for: %v", err))
	}
	size := (&expander{known: map[*yaml.Node]expansion{}}).expand(&document)
	if size.bytes > limit && size.values <= maxValues {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("with its aliases written out the YAML has more than %d bytes; write less, or JSON", limit))
	}
	return nil
}

// maxValues is ten times what the library lets aliases stand for. It finds more of them itself, before it writes anything out, and
// says so in its own words.
const maxValues = 4_000_000

// expansion is what a part of a document amounts to with its aliases written out.
type expansion struct{ values, bytes int64 }

// expander adds up, and goes into each part once, however often aliases name it.
type expander struct{ known map[*yaml.Node]expansion }

func (e *expander) expand(node *yaml.Node) expansion {
	if size, ok := e.known[node]; ok {
		return size
	}
	// A part that is in itself is endless; so it counts while it is being added up.
	e.known[node] = expansion{maxValues + 1, 0}
	size := expansion{1, int64(len(node.Value))}
	parts := node.Content
	if node.Kind == yaml.AliasNode {
		size, parts = expansion{}, []*yaml.Node{node.Alias}
	}
	for _, part := range parts {
		more := e.expand(part)
		// Each level can be many times the one below it; what is far beyond the limits needs no exact number.
		size.values = min(size.values+more.values, 1<<40)
		size.bytes = min(size.bytes+more.bytes, 1<<40)
	}
	e.known[node] = size
	return size
}
