// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// elsewhere returns a directory with a complete PKI whose CAs sign requests from other
// directories.
func elsewhere(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	mustInit(t, allSets(dir))
	return dir
}

func mustRequest(t *testing.T, opts InitOptions, name string) Item {
	t.Helper()
	report, err := Request(t.Context(), opts, name)
	if err != nil {
		t.Fatal(err)
	}
	return report.Items[0]
}

// signPending signs the request at path and returns the certificate's file.
func signPending(t *testing.T, path, ca string, change func(*SignOptions)) string {
	t.Helper()
	request, err := parseRequest(readPEM(t, path))
	if err != nil {
		t.Fatal(err)
	}
	opts := SignOptions{RequestFile: path, CA: ca, Out: filepath.Join(t.TempDir(), "cert.crt"), Now: at(epoch)}
	if opts.DNSNames, opts.IPs = request.DNSNames, toStrings(request.IPAddresses); len(opts.DNSNames)+len(
		opts.IPs) == 0 {
		opts.User, opts.Groups = request.Subject.CommonName, request.Subject.Organization
	}
	if change != nil {
		change(&opts)
	}
	if _, err := SignRequest(opts); err != nil {
		t.Fatal(err)
	}
	return opts.Out
}

// TestRequestAndAccept: each leaf can come from a CA elsewhere. Init then keeps it until it is
// due, without the CA's key.
func TestRequestAndAccept(t *testing.T) {
	from := elsewhere(t)
	for _, name := range Leaves() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			opts := allSets(dir)
			def, err := findLeaf(name)
			if err != nil {
				t.Fatal(err)
			}
			ca := filepath.Join(from, def.dir)
			report := mustRequest(t, opts, name)
			if report.Action != Made || report.Path != filepath.Join(dir, name, "pending", "tls.csr") {
				t.Errorf("got %+v, want a request created", report)
			}
			if _, err := os.Stat(filepath.Join(dir, name, KeyFile)); err == nil {
				t.Error("the pending key is in use")
			}
			cert := signPending(t, report.Path, ca, nil)
			accepted, err := Accept(t.Context(), AcceptOptions{Dir: dir, Name: name, CertFile: cert,
				CAFile: filepath.Join(ca, CertFile), Now: at(epoch)})
			if err != nil {
				t.Fatal(err)
			}
			if item := accepted.Items[0]; item.Action != Made || item.Name != name {
				t.Errorf("got %+v, want the leaf created", item)
			}
			if _, err := ReadKeyPair(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dir, name, PendingDir)); err == nil {
				t.Error("the pending request is left over")
			}
			chains, err := opts.chains([]caDef{def})
			if err != nil {
				t.Fatal(err)
			}
			if err := chains[0].plan(false); err != nil || chains[0].leaves[0].decision.Action != Kept {
				t.Errorf("Init would find %v and %+v, want the leaf kept", err, chains[0].leaves[0].decision)
			}
		})
	}
}

// TestRequestRenewal: a leaf can be renewed without the CA's key, and the current key pair
// stays in use until the new certificate arrives.
func TestRequestRenewal(t *testing.T) {
	from, dir := elsewhere(t), t.TempDir()
	opts := initOptions(dir, epoch)
	opts.With = []string{}
	ca := filepath.Join(from, ServingCADir)
	accept := AcceptOptions{Dir: dir, Name: ServingDir, CAFile: filepath.Join(ca, CertFile), Now: at(epoch)}
	accept.CertFile = signPending(t, mustRequest(t, opts, ServingDir).Path, ca, nil)
	if _, err := Accept(t.Context(), accept); err != nil {
		t.Fatal(err)
	}
	opts.Now = at(epoch.Add(61 * day))
	_, err := Init(t.Context(), opts)
	wantError(t, err, "expected the CA's key, found none; ")
	wantError(t, err, "create a request with certgen request serving")

	before := readPEM(t, dir, ServingDir, CertFile)
	report := mustRequest(t, opts, ServingDir)
	if string(readPEM(t, dir, ServingDir, CertFile)) != string(before) ||
		!strings.Contains(strings.Join(report.Notes, " "), "stays in use") {
		t.Errorf("the request changed the key pair in use, or did not report it: %q", report.Notes)
	}
	accept.CAFile, accept.Now = "", opts.Now
	accept.CertFile = signPending(t, report.Path, ca, func(o *SignOptions) { o.Now = opts.Now })
	accepted, err := Accept(t.Context(), accept)
	if err != nil || accepted.Items[0].Action != Replaced {
		t.Fatalf("got %+v, %v; want the leaf replaced", accepted, err)
	}
	mustInit(t, opts)
}

func TestRequestAgain(t *testing.T) {
	names := func(o *InitOptions) { o.DNSNames = []string{"a.example.com"} }
	pending := filepath.Join(ServingDir, PendingDir)
	for name, tc := range map[string]struct {
		spoil  func(*testing.T, string)
		change func(*InitOptions)
		want   Action
		reason string
	}{
		"the same":       {nil, nil, Kept, "an identical request is pending"},
		"other names":    {nil, names, Replaced, "DNS names: expected [a.example.com widgets"},
		"other key type": {nil, func(o *InitOptions) { o.KeyType = ECDSAP384 }, Replaced, "the key was ECDSA P-256"},
		"request damaged": {overwrite(pending+"/tls.csr", "what"), nil, Replaced,
			"expected one PEM block CERTIFICATE REQUEST"},
		"key damaged": {overwrite(pending+"/tls.key", "what"), nil, Replaced, "expected a PEM block PRIVATE KEY"},
		"key of another": {overwrite(pending+"/tls.key", "file:"+ServingCADir+"/tls.key"), nil, Replaced,
			"the key does not match the request"},
		"never finished": {func(t *testing.T, dir string) {
			remove(pending)(t, dir)
			if err := makeDir(filepath.Join(dir, pending, versionPrefix+"1")); err != nil {
				t.Fatal(err)
			}
		}, nil, Made, "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mustInit(t, initOptions(dir, epoch))
			opts := initOptions(dir, epoch)
			mustRequest(t, opts, ServingDir)
			key := readPEM(t, dir, pending, KeyFile)
			if tc.spoil != nil {
				tc.spoil(t, dir)
			}
			if tc.change != nil {
				tc.change(&opts)
			}
			report := mustRequest(t, opts, ServingDir)
			if report.Action != tc.want || !strings.Contains(report.Reason, tc.reason) {
				t.Errorf("got %s: %s, want %s: %s", report.Action, report.Reason, tc.want, tc.reason)
			}
			if same := string(readPEM(t, dir, pending, KeyFile)) == string(key); same != (tc.want == Kept) {
				t.Errorf("the pending key is the one before: %v", same)
			}
			if said := strings.Contains(strings.Join(report.Notes, " "),
				"cannot accept"); said != (tc.want == Replaced) {
				t.Errorf("notes %q speak of the lost key: %v", report.Notes, said)
			}
			if info, err := os.Stat(filepath.Join(dir, pending, KeyFile)); err != nil ||
				info.Mode().String() != modeText(keyMode) {
				t.Errorf("key of the request: %v, %v; want mode 0600", info.Mode(), err)
			}
		})
	}
}

func TestRequestOptions(t *testing.T) {
	opts := InitOptions{Dir: filepath.Join(t.TempDir(), "new")}
	_, err := Request(t.Context(), opts, "serving-ca")
	wantError(t, err, "expected one of serving, front-proxy-client, konnectivity-server, ")
	_, err = Request(t.Context(), opts, ServingDir)
	wantError(t, err, `service "": expected`)
	opts.KonnectivityServerNames = []string{"a:1"}
	_, err = Request(t.Context(), opts, KonnectivityServerDir)
	wantError(t, err, "remove the port")
	if _, err := os.Stat(opts.Dir); err == nil {
		t.Error("invalid options created a directory")
	}
	// A front proxy needs no Service.
	mustRequest(t, InitOptions{Dir: opts.Dir}, FrontProxyClientDir)
}
