// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDNSNames(t *testing.T) {
	label63 := strings.Repeat("a", 63)
	for in, want := range map[string]string{
		"widgets.demo.svc":   "widgets.demo.svc",
		"Widgets.Demo.SVC":   "widgets.demo.svc",
		"localhost":          "localhost",
		"*.widgets.demo.svc": "*.widgets.demo.svc",
		"xn--bcher-kva.de":   "xn--bcher-kva.de",
		"1a.svc":             "1a.svc",
		label63 + ".x":       label63 + ".x",
	} {
		got, err := parseAll("dns", []string{in}, normalizeDNSName)
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %q, %v; want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"":                              "an empty value; remove it",
		"https://widgets.demo.svc":      "remove the scheme",
		"widgets.demo.svc:443":          "remove the port",
		"10.0.0.1":                      "--ip",
		"fd00::1":                       "--ip",
		"[::1]":                         "without brackets",
		"10.0.0.0/24":                   "address range",
		"widgets.demo.svc/path":         "address range",
		"widgets.demo.svc.":             "trailing dot",
		"*":                             "not an RFC 1123 label",
		"*.svc":                         "single label",
		"a.*.svc":                       "not an RFC 1123 label",
		"a..svc":                        "not an RFC 1123 label",
		".svc":                          "not an RFC 1123 label",
		"-a.svc":                        "not an RFC 1123 label",
		"a_b.svc":                       "not an RFC 1123 label",
		"bücher.de":                     "xn--",
		"a b.svc":                       "not an RFC 1123 label",
		"a.svc\n":                       "not an RFC 1123 label",
		"10.0.0":                        "only digits",
		label63 + "a.svc":               "at most 63",
		strings.Repeat("a.", 127) + "a": "more than 253",
	} {
		_, err := parseAll("dns", []string{in}, normalizeDNSName)
		wantError(t, err, want)
	}
}

func TestIPs(t *testing.T) {
	got, err := parseAll("ip", []string{"10.0.0.1", "::ffff:10.0.0.1", "FD00::0:1", "10.0.0.1"}, parseIP)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"10.0.0.1", "fd00::1"}, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	for in, want := range map[string]string{
		"": "such as 10.0.0.1", "10.0.0.1:443": "port", "10.0.0.0/24": "prefix", "[::1]": "brackets",
		"localhost":    "--dns",
		"fe80::1%eth0": "zone", "0.0.0.0": "unspecified", "::": "unspecified", "::ffff:0.0.0.0": "unspecified",
		"::ffff:10.0.0.1%eth0": "zone", "010.0.0.1": "such as",
	} {
		_, err := parseAll("ip", []string{in}, parseIP)
		wantError(t, err, want)
	}
}

func TestService(t *testing.T) {
	want := []string{"widgets.demo.svc", "widgets.demo", "widgets", "widgets.demo.svc.k8s.internal"}
	if diff := cmp.Diff(want, Service{"widgets", "demo", "k8s.internal"}.DNSNames()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	for name, tc := range map[string]struct {
		service Service
		fields  []string
	}{
		"good":            {Service{"widgets", "demo", ""}, nil},
		"all wrong":       {Service{"", "a.b", "https://x"}, []string{"service", "namespace", "cluster-domain"}},
		"upper case":      {Service{"Widgets", "demo", ""}, []string{"service"}},
		"wildcard domain": {Service{"widgets", "demo", "*.cluster.local"}, []string{"cluster-domain"}},
		"long domain":     {Service{"widgets", "demo", strings.Repeat("a.", 120) + "local"}, []string{"service"}},
	} {
		var got []string
		for _, err := range Flatten(tc.service.Validate()) {
			var invalid *InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("%s: got %T, want *InvalidError", name, err)
			}
			got = append(got, invalid.Field)
		}
		if diff := cmp.Diff(tc.fields, got); diff != "" {
			t.Errorf("%s: wrong fields (-want +got):\n%s", name, diff)
		}
	}
}
