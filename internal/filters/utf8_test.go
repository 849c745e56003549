// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// TestRefuseInvalidUTF8 checks that a body, in whatever pieces it arrives, is read unchanged or
// rejected.
func TestRefuseInvalidUTF8(t *testing.T) {
	long := strings.Repeat("a", 4090) // near the size of a buffer
	for _, text := range []string{
		"", "a", "é", "\uFFFD", `\ufffd`, `\n\"\\`, `\\ud800`, `\\\\ud800`, `\ud83d\ude00`, `\uD83D\uDE00\ud83d\ude00`,
		`\u00e9`, `\ue000`, `\ud7ff`, `\uqqqq`, `\u12`, `\`,
	} {
		for _, body := range []string{`{"a":"` + text + `"}`, `{"a":"` + long + text + `"}`, text} {
			if got, err := readJSON(t, body); err != nil || got != body {
				t.Errorf("%.20q of %d bytes: got %q, %v, want the same", text, len(body), got, err)
			}
		}
	}
	for _, text := range []string{
		"\xff", "\xed\xa0\x80", `\ud800`, `\udc00`, `\uDBFFx`, `\ud800\n`, `\ud800\u0041`, `\ud800\ud800\udc00`,
		`\udc00\ud800`, `\\\ud800`, `\ud83d\ude00\ude00`,
	} {
		for _, body := range []string{`{"a":"` + text + `"}`, `{"a":"` + long + text + `"}`, text} {
			if _, err := readJSON(t, body); !apierrors.IsBadRequest(err) {
				t.Errorf("%.20q of %d bytes: got %v, want BadRequest", text, len(body), err)
			}
		}
	}
}

// readJSON returns the body that a handler reads, sent whole and byte by byte.
func readJSON(t *testing.T, body string) (string, error) {
	t.Helper()
	var whole string
	for _, reader := range []io.Reader{strings.NewReader(body), iotest.OneByteReader(strings.NewReader(body))} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", reader)
		req = req.WithContext(genericapirequest.WithRequestInfo(req.Context(),
			&genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "create"}))
		var err error
		WithUTF8Check(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			var read []byte
			read, err = io.ReadAll(req.Body)
			whole = string(read)
		})).ServeHTTP(httptest.NewRecorder(), req)
		if err != nil {
			return "", err
		}
	}
	return whole, nil
}
