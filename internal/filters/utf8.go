// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf16"

	"golang.org/x/text/encoding"
	"golang.org/x/text/transform"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// WithUTF8Check makes handlers respond with 400 to a JSON body that is not UTF-8 or contains half
// of a surrogate pair. The library would store U+FFFD for each. Its YAML parser rejects both.
func WithUTF8Check(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		contentType := strings.ToLower(req.Header.Get("Content-Type")) // JSON is the default
		isJSON := contentType == "" || strings.Contains(contentType, "json")
		if ok && info.IsResourceRequest && writes.Has(info.Verb) && isJSON {
			req.Body = withUTF8(req.Body)
		}
		handler.ServeHTTP(w, req)
	})
}

// withUTF8 returns a body whose Read returns an error for JSON that WithUTF8Check rejects.
func withUTF8(body io.ReadCloser) io.ReadCloser {
	return utf8Body{transform.NewReader(body, transform.Chain(encoding.UTF8Validator, surrogatePairs{})), body}
}

type utf8Body struct {
	io.Reader
	io.Closer
}

// Read implements io.Reader.
func (b utf8Body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	switch {
	case errors.Is(err, encoding.ErrInvalidUTF8):
		err = apierrors.NewBadRequest("the body is not UTF-8")
	case errors.Is(err, errSurrogate):
		err = apierrors.NewBadRequest("the body has an unpaired surrogate")
	}
	return n, err
}

var errSurrogate = errors.New("unpaired surrogate")

// surrogatePairs copies JSON. It returns errSurrogate for an escape that is half of a surrogate
// pair, such as \ud800 alone.
type surrogatePairs struct{ transform.NopResetter }

// Transform implements transform.Transformer.
func (surrogatePairs) Transform(dst, src []byte, atEOF bool) (nDst, nSrc int, err error) {
	for nSrc < len(src) {
		size := bytes.IndexByte(src[nSrc:], '\\')
		switch {
		case size < 0:
			size = len(src) - nSrc
		case size == 0:
			if size, err = escape(src[nSrc:], atEOF); err != nil {
				return nDst, nSrc, err
			}
			if size > len(dst)-nDst {
				return nDst, nSrc, transform.ErrShortDst
			}
		}
		copied := copy(dst[nDst:], src[nSrc:nSrc+size])
		nDst, nSrc = nDst+copied, nSrc+copied
		if copied < size {
			return nDst, nSrc, transform.ErrShortDst
		}
	}
	return nDst, nSrc, nil
}

// escape returns the number of bytes of the escape, or of the surrogate pair, at the beginning of
// json. It leaves an invalid escape to the decoder.
func escape(json []byte, atEOF bool) (int, error) {
	const single, unicode, pair = len(`\n`), len(`\u0000`), len(`\ud800\udc00`)
	if len(json) < pair && !atEOF {
		return 0, transform.ErrShortSrc
	}
	first, ok := codeUnit(json)
	if !ok {
		return min(single, len(json)), nil
	}
	if !utf16.IsSurrogate(first) {
		return unicode, nil
	}
	second, _ := codeUnit(json[unicode:])
	if utf16.DecodeRune(first, second) == '\uFFFD' {
		return 0, errSurrogate
	}
	return pair, nil
}

// codeUnit returns the UTF-16 code unit of the escape \uXXXX at the beginning of json.
func codeUnit(json []byte) (rune, bool) {
	if len(json) < 6 || json[0] != '\\' || json[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(json[2:6]), 16, 16)
	return rune(unit), err == nil
}
