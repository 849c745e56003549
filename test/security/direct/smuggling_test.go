// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
)

// smuggled are header lines on the wire of HTTP/1.1, each with the only allowed interpretation:
// "400", "401", or the user. It is never a mixture of two, and never a user that no well-formed
// header contains.
var smuggled = []struct{ name, lines, want string }{
	{"as it should be", "X-Remote-User: ann", "ann"},
	{"with groups", "X-Remote-User: ann\r\nX-Remote-Group: a\r\nX-Remote-Group: b", `ann groups=["a" "b"]`},
	{"lower case", "x-remote-user: ann", "ann"},
	{"upper case", "X-REMOTE-USER: ann", "ann"},
	{"twice: the first counts", "X-Remote-User: ann\r\nX-Remote-User: boss", "ann"},
	{"twice, in different case", "x-remote-user: ann\r\nX-REMOTE-USER: boss", "ann"},
	{"empty, then a name", "X-Remote-User:\r\nX-Remote-User: boss", "401"},
	{"a list is one name", "X-Remote-User: ann, boss", "ann, boss"},
	{"groups are no list either", "X-Remote-User: ann\r\nX-Remote-Group: a, system:masters",
		`ann groups=["a, system:masters"]`},
	{"underscores", "X_Remote_User: boss", "401"},
	{"underscores beside", "X-Remote-User: ann\r\nX_Remote_User: boss\r\nX_Remote_Group: system:masters", "ann"},
	{"a mixture of both", "X-Remote_User: boss", "401"},
	{"blanks around the value", "X-Remote-User: \t ann \t ", "ann"},
	{"nothing but blanks", "X-Remote-User: \t ", "401"},
	{"blank before the colon", "X-Remote-User : boss", "400"},
	{"tab before the colon", "X-Remote-User\t: boss", "400"},
	{"blank before the name", " X-Remote-User: boss", "400"},
	{"two colons", "X-Remote-User:: boss", ": boss"},
	{"no colon", "X-Remote-User boss", "400"},
	{"a name of two words", "X-Remote-User: ann\r\nX Remote Group: system:masters", "400"},
	// RFC 9112 section 5.2: a server rejects a folded line or replaces the fold with a space. It
	// never treats it as a separate line.
	{"folded", "X-Remote-User: ann\r\n boss", "ann boss"},
	{"a header in a fold", "X-Remote-User: ann\r\n\tX-Remote-Group: system:masters",
		"ann X-Remote-Group: system:masters"},
	// RFC 9112 section 2.2: a lone LF may end a line; a lone CR must not.
	{"LF", "X-Remote-User: ann\nX-Remote-Group: a", `ann groups=["a"]`},
	{"CR", "X-Remote-User: ann\rX-Remote-Group: system:masters", "400"},
	{"CR CR LF", "X-Remote-User: ann\r\r\nX-Remote-Group: system:masters", "400"},
	{"NUL", "X-Remote-User: ann\x00boss", "400"},
	{"NUL in the name", "X-Remote\x00-User: boss", "400"},
	{"vertical tab", "X-Remote-User: ann\x0bboss", "400"},
	{"DEL", "X-Remote-User: ann\x7f", "400"},
	{"an encoded line break", "X-Remote-User: ann%0d%0aX-Remote-Group: system:masters",
		"ann%0d%0aX-Remote-Group: system:masters"},
	{"an encoded name", "X%2DRemote%2DUser: boss", "401"},
	{"hop by hop", "X-Remote-User: ann\r\nConnection: X-Remote-User", "ann"},
	{"extra without a key", "X-Remote-User: ann\r\nX-Remote-Extra-: x", "ann extra=map[:[x]]"},
	{"extra of one key in two spellings", "X-Remote-User: ann\r\nX-Remote-Extra-a%2fb: x\r\nX-Remote-Extra-A%2Fb: x",
		"ann extra=map[a/b:[x x]]"},
	{"announced in a trailer", "Trailer: X-Remote-User", "401"},
	{"changed by a trailer", "X-Remote-User: ann\r\nTrailer: X-Remote-Group", "ann"},
}

// TestS07Smuggling sends each request as the front proxy, which shows its interpretation, and
// without a certificate, where it must be rejected.
func TestS07Smuggling(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	proxy := frontProxy(t)
	for _, tc := range smuggled {
		t.Run(tc.name, func(t *testing.T) {
			if got := s.read(t, proxy, tc.lines); got != tc.want {
				t.Errorf("as the front proxy: read as %s, want %s", got, tc.want)
			}
			if got := s.read(t, nil, tc.lines); got != "401" && got != "400" {
				t.Errorf("without a certificate: read as %s, want 401 or 400", got)
			}
		})
	}
}

// read sends a request with the header lines, and returns the user, or the status if there is
// none.
func (s *server) read(t *testing.T, cert *tls.Certificate, lines string) string {
	t.Helper()
	body := fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(reviewBody), reviewBody)
	if strings.Contains(lines, "Trailer:") {
		body = fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nX-Remote-User: "+
			"boss\r\nX-Remote-Group: system:masters\r\n\r\n", len(reviewBody), reviewBody)
	}
	status, response := s.raw(t,
		fmt.Sprintf("POST %s HTTP/1.1\r\n%s\r\nHost: localhost\r\nContent-Type: application/json\r\n%s", whoami,
			lines, body), cert)
	if status != "201" {
		return status
	}
	return who(parseReview(t, response).UserInfo)
}
