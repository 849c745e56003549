// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/transform"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// refuseInvalidUTF8 makes the handler respond with 400 to a body in JSON that is not UTF-8. The library would store the character U+FFFD
// for each invalid byte. Its YAML parser rejects such bytes.
func refuseInvalidUTF8(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		contentType := strings.ToLower(req.Header.Get("Content-Type")) // JSON is the default
		isJSON := contentType == "" || strings.Contains(contentType, "json")
		if ok && info.IsResourceRequest && writes.Has(info.Verb) && isJSON {
			req.Body = utf8Body{transform.NewReader(req.Body, encoding.UTF8Validator), req.Body}
		}
		handler.ServeHTTP(w, req)
	})
}

type utf8Body struct {
	io.Reader
	io.Closer
}

// Read implements io.Reader.
func (b utf8Body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, encoding.ErrInvalidUTF8) {
		err = apierrors.NewBadRequest("the body is not UTF-8")
	}
	return n, err
}
