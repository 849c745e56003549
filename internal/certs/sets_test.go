// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func allSets(dir string) InitOptions {
	opts := initOptions(dir, epoch)
	opts.With = SetNames()
	opts.KonnectivityAgentServerNames = []string{"konnectivity.example.com", "10.0.0.9"}
	return opts
}

// TestInitCreatesAllCertificates checks the CAs, names, usages and lifetimes of all key pairs in
// each set.
func TestInitCreatesAllCertificates(t *testing.T) {
	type pair struct {
		usages, names string
		life          int // days
	}
	both, server, client := "[serverAuth clientAuth]", "[serverAuth]", "[clientAuth]"
	serving := map[string]pair{
		"serving-ca": {server, "[] []", 1825}, "serving": {server,
			"[widgets.demo.svc widgets.demo widgets widgets.demo.svc.cluster.local] []", 90},
	}
	frontProxy := map[string]pair{"front-proxy-ca": {client, "[] []", 1825},
		"front-proxy-client": {client, "[] []", 90}}
	konnectivity := map[string]pair{
		"konnectivity-server-ca": {both, "[] []", 1825}, "konnectivity-server": {server,
			"[localhost] [127.0.0.1 ::1]", 365},
		"konnectivity-apiserver-client": {client, "[] []", 365},
		"konnectivity-agent-ca":         {both, "[] []", 1825},
		"konnectivity-agent-server":     {server, "[konnectivity.example.com] [10.0.0.9]", 365},
		"konnectivity-agent":            {client, "[] []", 365},
	}
	for name, tc := range map[string]struct {
		with []string
		want []map[string]pair
	}{
		"default":      {nil, []map[string]pair{serving, frontProxy}},
		"none":         {[]string{}, []map[string]pair{serving}},
		"konnectivity": {[]string{"konnectivity"}, []map[string]pair{serving, konnectivity}},
		"all":          {[]string{"konnectivity", "front-proxy"}, []map[string]pair{serving, frontProxy, konnectivity}},
	} {
		t.Run(name, func(t *testing.T) {
			opts := allSets(t.TempDir())
			if opts.With = tc.with; !slices.Contains(tc.with, SetKonnectivity) {
				opts.KonnectivityAgentServerNames = nil
			}
			want, got := map[string]pair{}, map[string]pair{}
			for _, set := range tc.want {
				maps.Copy(want, set)
			}
			for _, item := range mustInit(t, opts).Items {
				cert, err := parseCertificate(readPEM(t, item.Path, CertFile))
				if err != nil {
					t.Fatal(err)
				}
				got[item.Name] = pair{
					sprint(extKeyUsageNames(cert.ExtKeyUsage, nil)), sprint(cert.DNSNames) + " " +
						sprint(toStrings(cert.IPAddresses)), item.Certificate.DaysLeft,
				}
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(pair{})); diff != "" {
				t.Errorf("pairs (-want +got):\n%s", diff)
			}
			for name, got := range actions(mustInit(t, opts)) {
				if !strings.HasPrefix(got, "unchanged: ") {
					t.Errorf("another run: %s %s, want it unchanged", name, got)
				}
			}
		})
	}
}

func sprint(values []string) string { return "[" + strings.Join(values, " ") + "]" }

// TestKonnectivityKeyPairsAreSeparate: an agent cannot act as kube-apiserver, and a client cannot
// act as a server, although both ends of a connection share a CA.
func TestKonnectivityKeyPairsAreSeparate(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, allSets(dir))
	for _, tc := range []struct {
		leaf, trust    string
		client, server bool
	}{
		{KonnectivityAPIServerClientDir, KonnectivityServerDir, true, false},
		{KonnectivityServerDir, KonnectivityAPIServerClientDir, false, true},
		{KonnectivityAgentDir, KonnectivityAgentServerDir, true, false},
		{KonnectivityAgentServerDir, KonnectivityAgentDir, false, true},
		{KonnectivityAgentDir, KonnectivityServerDir, false, false},
		{KonnectivityAPIServerClientDir, KonnectivityAgentServerDir, false, false},
		{KonnectivityServerDir, KonnectivityAgentDir, false, false},
		{FrontProxyClientDir, KonnectivityAgentServerDir, false, false},
		{KonnectivityAgentDir, FrontProxyClientDir, false, false},
	} {
		pair, err := ReadKeyPair(filepath.Join(dir, tc.leaf))
		if err != nil {
			t.Fatal(err)
		}
		trust := readPEM(t, dir, tc.trust, BundleFile)
		if err := verifyClient(pair.Certificate, trust); (err == nil) != tc.client {
			t.Errorf("%s as a client of %s: got %v, want success %v", tc.leaf, tc.trust, err, tc.client)
		}
		if err := verifyServing(pair.Certificate, trust, ""); (err == nil) != tc.server {
			t.Errorf("%s as a server of %s: got %v, want success %v", tc.leaf, tc.trust, err, tc.server)
		}
	}
}

// TestLeavesHaveOneUsage: no option and no set creates a leaf with both usages.
func TestLeavesHaveOneUsage(t *testing.T) {
	opts := allSets("pki")
	chains, err := opts.chains(opts.cas())
	if err != nil {
		t.Fatal(err)
	}
	leaves := 0
	for _, c := range chains {
		for _, l := range c.leaves {
			leaves++
			l.want.mutual = true // applies only to CAs
			if got := l.want.extKeyUsages(); len(got) != 1 {
				t.Errorf("%s has the usages %s, want one", l.name, extKeyUsageNames(got, nil))
			}
		}
	}
	if known := Leaves(); leaves != len(known) {
		t.Errorf("with all sets there are %d leaves, Leaves lists %d", leaves, len(known))
	}
}

func TestSetOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*InitOptions)
		field  string
		want   string
	}{
		"unknown set": {func(o *InitOptions) { o.With = []string{"front-proxy", "konectivity"} }, "with",
			"expected front-proxy or konnectivity"},
		"empty set beside others": {func(o *InitOptions) { o.With = []string{"front-proxy", ""} }, "with",
			"expected front-proxy or konnectivity"},
		"names without the set": {func(o *InitOptions) { o.KonnectivityServerNames = []string{"a.example.com"} },
			"with", "expected konnectivity, for a.example.com"},
		"no name for agents": {func(o *InitOptions) { o.With = []string{"konnectivity"} },
			"konnectivity-agent-server-name", "--proxy-server-host"},
		"name with a port": {func(o *InitOptions) {
			o.With, o.KonnectivityAgentServerNames = []string{"konnectivity"}, []string{"a.example.com:8091"}
		}, "konnectivity-agent-server-name", "remove the port"},
		"unspecified address": {func(o *InitOptions) {
			o.With, o.KonnectivityAgentServerNames = []string{"konnectivity"}, []string{"0.0.0.0"}
		}, "konnectivity-agent-server-name", "found the unspecified address"},
		"no server name at all": {func(o *InitOptions) {
			o.With, o.KonnectivityAgentServerNames, o.KonnectivityServerNames = []string{"konnectivity"},
				[]string{"a.example.com"}, []string{}
		}, "konnectivity-server-name", "at least one"},
		"long life":  {func(o *InitOptions) { o.Lifetime = 399 * day }, "lifetime", "--allow-long-lived"},
		"no life":    {func(o *InitOptions) { o.Lifetime = -1 }, "lifetime", "at least one second"},
		"no service": {func(o *InitOptions) { o.Service.Name = "" }, "service", "found nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := initOptions(filepath.Join(t.TempDir(), "new"), epoch)
			tc.change(&opts)
			_, err := Init(t.Context(), opts)
			wantError(t, err, tc.want)
			if invalid, ok := errors.AsType[*InvalidError](err); !ok || invalid.Field != tc.field ||
				len(Flatten(err)) != 1 {
				t.Errorf("got %v, want one *InvalidError for %s", err, tc.field)
			}
			if _, err := os.Stat(opts.Dir); err == nil {
				t.Error("invalid options created a directory")
			}
		})
	}
}

func TestInitLifetime(t *testing.T) {
	opts := allSets(t.TempDir())
	opts.Lifetime, opts.AllowLongLived = 500*day, true
	for _, item := range mustInit(t, opts).Items {
		want := 500
		if item.Certificate.CA {
			want = 1825
		}
		if item.Certificate.DaysLeft != want {
			t.Errorf("%s is valid for %d days, want %d", item.Name, item.Certificate.DaysLeft, want)
		}
	}
	// A lifetime beyond the CA's is reduced, and a note reports it.
	opts = allSets(t.TempDir())
	opts.Lifetime, opts.AllowLongLived = 2*CALifetime, true
	for _, item := range mustInit(t, opts).Items {
		if c := item.Certificate; !c.CA && (!c.NotAfter.Equal(epoch.Add(CALifetime)) ||
			!strings.Contains(strings.Join(item.Notes, " "), "expires together with its CA")) {
			t.Errorf("%s ends %s, notes %q; want it to end with its CA and a note", item.Name, c.NotAfter, item.Notes)
		}
	}
}

// TestInitReportsRestarts: the report recommends a restart after replacing a certificate that
// its program reads only at startup.
func TestInitReportsRestarts(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, allSets(dir))
	opts := allSets(dir)
	opts.Now = at(epoch.Add(300 * day))
	for _, item := range mustInit(t, opts).Items {
		restart := strings.Contains(strings.Join(item.Notes, " "), "restart")
		if want := strings.HasPrefix(item.Name, SetKonnectivity) && !item.Certificate.CA; restart != want {
			t.Errorf("%s: notes %q, want a word on a restart %v", item.Name, item.Notes, want)
		}
	}
}

// TestInitRejectsUsersCA: Init returns an error if the front-proxy CA and the users' CA share
// a key, even in different certificates, or if one signed the other. A user's certificate could
// then be used as the front proxy's.
func TestInitRejectsUsersCA(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, initOptions(dir, epoch))
	own, err := ReadKeyPair(filepath.Join(dir, FrontProxyCADir))
	if err != nil {
		t.Fatal(err)
	}
	again := forgeWithKey(t, KeyPair{}, &x509.Certificate{BasicConstraintsValid: true, IsCA: true}, own.Key)
	other := newClientCA(t)
	below := forgeWithKey(t, *own, &x509.Certificate{BasicConstraintsValid: true, IsCA: true}, other.Key)
	write := func(b Bundle) string {
		path := filepath.Join(t.TempDir(), "users.crt")
		if err := os.WriteFile(path, b.PEM(), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	strangers := write(Bundle{other.Certificate})
	opts := initOptions(dir, epoch)
	opts.ClientCAFiles = []string{strangers}
	mustInit(t, opts)

	opts.AllowNewCA = true // must not help: the bundle would still contain it
	for relation, ca := range map[string]*x509.Certificate{"has the key of": again.Certificate,
		"signed": below.Certificate} {
		opts.ClientCAFiles = []string{strangers, write(Bundle{other.Certificate, ca})}
		before := contents(t, dir)
		_, err = Init(t.Context(), opts)
		wantError(t, err, FrontProxyCADir+"/tls.crt: expected a dedicated CA, found one that "+relation)
		if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
			t.Errorf("a refusal changed files:\n%s", diff)
		}
	}
	// A users' CA in the bundle alone is just as dangerous, because kube-apiserver trusts the
	// bundle.
	overwrite(FrontProxyClientDir+"/ca.crt", string(Bundle{own.Certificate, other.Certificate}.PEM()))(t, dir)
	opts.ClientCAFiles = []string{strangers}
	_, err = Init(t.Context(), opts)
	wantError(t, err, FrontProxyClientDir+"/ca.crt: expected a dedicated CA")
	opts.ClientCAFiles = []string{filepath.Join(dir, "nowhere")}
	_, err = Init(t.Context(), opts)
	wantError(t, err, "expected a readable file")
}
