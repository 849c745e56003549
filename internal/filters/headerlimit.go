// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// maxFields is the maximum number of header fields with different names. A request holds its
// fields until it ends, and each takes 200 bytes in addition to its text.
const maxFields = 128

// maxMediaTypes is the maximum size of the fields Accept and Content-Type in bytes. The library parses
// them several times, and each comma or semicolon takes 50 bytes and more.
const maxMediaTypes = 4 << 10

// WithHeaderLimit responds with 431 to a request with more than 128 different header fields, or with a
// field Accept or Content-Type of more than 4 KiB, and with 400 to one with costly selectors. It
// removes Range, because the library would copy OpenAPI documents once for each range. It must run
// before authentication.
func WithHeaderLimit(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if len(req.Header) > maxFields {
			http.Error(w, "too many header fields", http.StatusRequestHeaderFieldsTooLarge)
			return
		}
		for _, name := range []string{"Accept", "Content-Type"} {
			if len(req.Header.Get(name)) > maxMediaTypes {
				http.Error(w, fmt.Sprintf("the header field %s has more than %d bytes", name, maxMediaTypes),
					http.StatusRequestHeaderFieldsTooLarge)
				return
			}
		}
		if err := checkSelectors(req.URL.Query()); err != nil {
			responsewriters.RespondWithError(w, req, err, serializer)
			return
		}
		req.Header.Del("Range")
		handler.ServeHTTP(w, req)
	})
}

const (
	// maxRequirements is the maximum number of requirements in the selectors of a request, and
	// maxSetValues is the maximum number of values in their sets. Each is compared with each
	// object.
	maxRequirements = 100
	maxSetValues    = 250
)

// checkSelectors returns an error with status 400 if the selectors have too many requirements or
// values. In a label selector, the values of a set are in parentheses.
func checkSelectors(query url.Values) error {
	requirements, values, inSet := 0, 0, false
	for _, name := range []string{"labelSelector", "fieldSelector"} {
		if query.Get(name) != "" {
			requirements++
		}
		for _, char := range []byte(query.Get(name)) {
			switch {
			case char == '(' && name == "labelSelector":
				inSet = true
				values++
			case char == ')':
				inSet = false
			case char == ',' && inSet:
				values++
			case char == ',':
				requirements++
			}
		}
	}
	if requirements > maxRequirements || values > maxSetValues {
		return apierrors.NewBadRequest(fmt.Sprintf("the selectors have %d requirements and sets with %d values; the "+
			"limits are %d and %d", requirements, values, maxRequirements, maxSetValues))
	}
	return nil
}
