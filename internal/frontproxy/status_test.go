// SPDX-License-Identifier: Apache-2.0

package frontproxy

import (
	"crypto/x509"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"example.com/extension-apiserver/internal/certs"
)

// published returns the ConfigMap as kube-apiserver creates it, with the CAs of the two bundles.
func published(cas, clientCAs certs.Bundle) *corev1.ConfigMap {
	return &corev1.ConfigMap{Data: map[string]string{
		ClientCAKey:            string(clientCAs.PEM()),
		CAKey:                  string(cas.PEM()),
		AllowedNamesKey:        `["front-proxy-client"]`,
		UsernameHeadersKey:     `["X-Remote-User"]`,
		UIDHeadersKey:          `["X-Remote-Uid"]`,
		GroupHeadersKey:        `["X-Remote-Group"]`,
		ExtraHeaderPrefixesKey: `["X-Remote-Extra-"]`,
	}}
}

func newCA(t *testing.T, name string) *certs.CA {
	t.Helper()
	ca, err := certs.NewCA(certs.CAOptions{Name: name, Usage: x509.ExtKeyUsageClientAuth})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// TestS11Evaluate checks that each key is parsed, and that a missing or malformed key is a
// problem.
func TestS11Evaluate(t *testing.T) {
	proxies, users := certs.Bundle{newCA(t, "front-proxy-ca").Certificate},
		certs.Bundle{newCA(t, "client-ca").Certificate}
	type problem struct{ Weakness, Text string }
	none := problem{}
	for _, tc := range []struct {
		name, key, value string
		proxy, clients   problem
	}{
		{"as it should be", UIDHeadersKey, "", none, none},
		{"no CA", CAKey, " \n",
			problem{"", "has no requestheader-client-ca-file: the aggregation layer of this cluster is not configured"},
			none},
		{"CA not PEM", CAKey, "PEM",
			problem{"", "has a malformed requestheader-client-ca-file: data does not contain any valid"}, none},
		{"CA damaged", CAKey, string(proxies.PEM()) + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
			problem{"", "has a malformed requestheader-client-ca-file: "}, none},
		{"no client CA", ClientCAKey, "", none, problem{"", "has no client-ca-file"}},
		{"client CA not PEM", ClientCAKey, "PEM", problem{"", "has a malformed client-ca-file: "},
			problem{"", "has a malformed client-ca-file: "}},
		{"names unset", AllowedNamesKey, "", problem{AnyName, "has an empty requestheader-allowed-names"}, none},
		{"no names", AllowedNamesKey, "[]", problem{AnyName, "has an empty requestheader-allowed-names"}, none},
		{"names null", AllowedNamesKey, "null", problem{AnyName, "has an empty requestheader-allowed-names"}, none},
		{"names not a list", AllowedNamesKey, "front-proxy-client",
			problem{"", "has a malformed requestheader-allowed-names: expected a list of strings in JSON: invalid"},
			none},
		{"a blank name", AllowedNamesKey, `["front-proxy-client",""]`,
			problem{"", "has a malformed requestheader-allowed-names: expected a list of strings in JSON, found a " +
				"blank one"}, none},
		{"no username header", UsernameHeadersKey, "[]", problem{"",
			"names no header in requestheader-username-headers"}, none},
		{"username header unset", UsernameHeadersKey, "", problem{"",
			"names no header in requestheader-username-headers"}, none},
		{"username headers cut off", UsernameHeadersKey, `["X-Remote-User"`,
			problem{"", "has a malformed requestheader-username-headers: "}, none},
		{"UID headers of another type", UIDHeadersKey, `[1]`,
			problem{"", "has a malformed requestheader-uid-headers: "}, none},
		{"group headers not a list", GroupHeadersKey, `"X-Remote-Group"`,
			problem{"", "has a malformed requestheader-group-headers: "}, none},
		{"group headers blank", GroupHeadersKey, " ", problem{"", "has a malformed requestheader-group-headers: "},
			none},
		{"group headers unset", GroupHeadersKey, "", none, none},
		{"extra prefixes cut off", ExtraHeaderPrefixesKey, `["X-Remote-Extra-`,
			problem{"", "has a malformed requestheader-extra-headers-prefix: "}, none},
		{"a blank prefix", ExtraHeaderPrefixesKey, `[""]`,
			problem{"", "has a malformed requestheader-extra-headers-prefix: "}, none},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cm := published(proxies, users)
			cm.Data[tc.key] = tc.value
			s := Evaluate(cm)
			check := func(what string, got []Problem, want problem) {
				t.Helper()
				ok := len(got) == 0
				if want != none {
					ok = len(got) == 1 && got[0].Weakness == want.Weakness && strings.HasPrefix(got[0].Text, want.Text)
				}
				if !ok {
					t.Errorf("%s: got %+v, want %+v", what, got, want)
				}
			}
			check("front proxy", s.Problems, tc.proxy)
			var clients []Problem
			if s.ClientCAProblem != nil {
				clients = append(clients, *s.ClientCAProblem)
			}
			check("clients", clients, tc.clients)
		})
	}
	if s := Evaluate(nil); len(s.Problems) != 1 || s.Problems[0].Weakness != "" || s.ClientCAProblem == nil {
		t.Errorf("without the ConfigMap: got %+v, want one problem that cannot be tolerated, and one of clients", s)
	}
	got, want := Evaluate(published(proxies, users)), Status{
		CAs: proxies, ClientCAs: users, AllowedNames: []string{"front-proxy-client"},
		UsernameHeaders: []string{"X-Remote-User"},
		UIDHeaders:      []string{"X-Remote-Uid"}, GroupHeaders: []string{"X-Remote-Group"},
		ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b *x509.Certificate) bool { return a.Equal(b) })); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
}

// TestEvaluateReportsAll checks that one problem does not hide another.
func TestEvaluateReportsAll(t *testing.T) {
	ca := certs.Bundle{newCA(t, "ca").Certificate}
	cm := published(ca, ca)
	cm.Data[AllowedNamesKey], cm.Data[UsernameHeadersKey], cm.Data[GroupHeadersKey] = "", "", "typo"
	var got []string
	for _, p := range Evaluate(cm).Problems {
		got = append(got, p.Weakness+" "+strings.Join(strings.Fields(p.Text)[:3], " "))
	}
	want := []string{"AnyName has an empty", " names no header", " has a malformed", "SharedCA has a CA"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
