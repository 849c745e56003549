// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net"
	"strings"
	"testing"
)

// TestCheckPort: a port in use is an error before the server starts, unless port sharing is
// permitted.
func TestCheckPort(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, tc := range []struct {
		name  string
		share bool
		want  string
	}{
		{"taken", false, "address already in use; choose another --secure-port or --bind-address, or stop the " +
			"process that uses it"},
		{"shared", true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := mustOptions(testAPI)
			o.Recommended.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
			o.Recommended.SecureServing.BindPort = taken.Addr().(*net.TCPAddr).Port
			o.Recommended.SecureServing.PermitPortSharing = tc.share
			got := ""
			if err := o.checkPort(t.Context()); err != nil {
				got = err.Error()
			}
			if (got == "") != (tc.want == "") || !strings.HasSuffix(got, tc.want) {
				t.Errorf("got error %q, want %q", got, tc.want)
			}
		})
	}
}
