// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/extension-apiserver/internal/certs"
)

const day = 24 * time.Hour

func mustExpire(t *testing.T, now time.Time, paths ...string) *ExpirationReport {
	t.Helper()
	return mustExpireWithin(t, ExpirationOptions{WarnWithin: 30 * day, FailWithin: 7 * day, Now: now}, paths...)
}

func mustExpireWithin(t *testing.T, opts ExpirationOptions, paths ...string) *ExpirationReport {
	t.Helper()
	held, err := InFiles(paths, opts.Now)
	if err != nil {
		t.Fatal(err)
	}
	return ExpirationsOf(held, opts)
}

// failed reports whether any certificate is due, expired or in error.
func failed(r *ExpirationReport) bool {
	return r.Summary[StateDue]+r.Summary[StateExpired]+r.Summary[StateError] > 0
}

func TestExpirationStates(t *testing.T) {
	f := newFixture(t)
	dir := filepath.Join(t.TempDir(), "serving")
	f.write(dir, goodServing(f))
	for _, tc := range []struct {
		left     time.Duration
		want     State
		failed   bool
		findings int
	}{
		{30*day + time.Second, StateOK, false, 0},
		{30 * day, StateWarn, false, 1},
		{7*day + time.Second, StateWarn, false, 1},
		{7 * day, StateDue, true, 1},
		{0, StateDue, true, 1},
		{-time.Second, StateExpired, true, 1},
		{certs.LeafLifetime + 2*time.Hour, StateError, true, 1}, // before its validity begins
	} {
		r := mustExpire(t, f.serving.Certificate.NotAfter.Add(-tc.left), dir)
		e := r.Certificates[0]
		if e.State != tc.want || failed(r) != tc.failed || len(e.Findings) != tc.findings ||
			e.ResidualTime != int64(tc.left/time.Second) {
			t.Errorf("%s left: got state %s, failed %t, residual time %d, findings %+v; want %+v", tc.left, e.State,
				failed(r), e.ResidualTime, e.Findings, tc)
		}
	}
	// With thresholds of 0, only an expired certificate gives a finding.
	r := mustExpireWithin(t, ExpirationOptions{Now: f.serving.Certificate.NotAfter.Add(-time.Second)}, dir)
	if failed(r) || len(r.Certificates[0].Findings) > 0 {
		t.Errorf("got %+v", r)
	}
}

// TestExpirationRotation: with two trusted CAs, the report shows the signing one, whose key is
// elsewhere, and the retiring one.
func TestExpirationRotation(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	old := f.ca(certs.CAOptions{Usage: x509.ExtKeyUsageServerAuth,
		Now: func() time.Time { return epoch.Add(100*day - certs.CALifetime) }})
	f.write(filepath.Join(dir, "serving"), pairFiles(f.serving, &old.KeyPair, &f.servingCA.KeyPair))
	f.write(filepath.Join(dir, "front-proxy-client"), goodClient(f))
	f.write(filepath.Join(dir, "front-proxy-ca"), pairFiles(&f.clientCA.KeyPair))
	f.write(filepath.Join(dir, "serving-ca"), pairFiles(&f.servingCA.KeyPair).without(certs.KeyFile))
	r := mustExpire(t, epoch, dir)
	var got []string
	for _, e := range r.Certificates {
		got = append(got, fmt.Sprintf("%s of %s, external %t, %s", e.Name, e.CAName, e.ExternallyManaged, e.State))
	}
	for _, a := range r.Authorities {
		trust := strings.ReplaceAll(filepath.ToSlash(strings.Join(a.TrustedBy, ", ")), filepath.ToSlash(dir)+"/", "")
		got = append(got, fmt.Sprintf("%s %q issues %d, external %t, trusted by %s, %s", a.Name, a.Role, a.Issues,
			a.ExternallyManaged, trust, a.State))
	}
	want := []string{
		"front-proxy-client of front-proxy-ca, external false, ok",
		"serving of serving-ca, external true, ok",
		`front-proxy-ca "signing" issues 1, external false, trusted by front-proxy-client/ca.crt (1 of 1), ok`,
		`serving-ca "signing" issues 1, external true, trusted by serving/ca.crt (2 of 2), ok`,
		`serving/ca.crt "retiring" issues 0, external true, trusted by serving/ca.crt (1 of 2), ok`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	all := func(ok, expired int) map[State]int {
		return map[State]int{StateOK: ok, StateWarn: 0, StateDue: 0, StateExpired: expired, StateError: 0}
	}
	if diff := cmp.Diff(all(5, 0), r.Summary); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	// The retiring CA expires first, then the leaves.
	if diff := cmp.Diff(all(2, 3), mustExpire(t, epoch.Add(101*day), dir).Summary); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

// TestExpirationMissing: a missing or unreadable certificate never has the state ok.
func TestExpirationMissing(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	f.write(filepath.Join(dir, "serving"), goodServing(f).without(certs.CertFile))
	f.write(filepath.Join(dir, "front-proxy-client"), goodClient(f).edit(certs.CertFile,
		func([]byte) []byte { return []byte("x") }))
	f.writePlain(dir, files{"sa.key": {Data: f.serving.KeyPEM, Mode: 0o600}})
	r := mustExpire(t, epoch, filepath.Join(dir, "serving", "tls.key"), dir)
	// A ca.crt without a certificate next to it is a separate certificate file; its CA is listed
	// as a CA.
	if len(r.Certificates) != 2 || r.Summary[StateError] != 2 || !failed(r) {
		t.Fatalf("got %+v, want two errors", r)
	}
	if e := r.Certificates[0]; !e.Missing || e.NotAfter != nil || e.Findings[0].ID != "F02" {
		t.Errorf("got %+v, want it missing", e)
	}
	if e := r.Certificates[1]; e.Missing || e.NotAfter != nil || e.Findings[0].ID != "F04" {
		t.Errorf("got %+v, want it damaged", e)
	}
}

// TestExpirationFields checks the names of the JSON fields, ours and kubeadm's.
func TestExpirationFields(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	f.write(filepath.Join(dir, "serving"), goodServing(f))
	data, err := json.Marshal(mustExpire(t, epoch.Add(time.Second), dir))
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	certificate := doc["certificates"].([]any)[0].(map[string]any)
	for _, field := range []string{
		"name", "source", "uri", "subject", "sans", "serial", "sha256", "notBefore", "notAfter", "residualSeconds",
		"renewAt", "caName",
		"caSha256", "keyAlgorithm", "state", "findings", "expirationDate", "residualTime", "missing",
		"externallyManaged",
	} {
		if _, ok := certificate[field]; !ok {
			t.Errorf("no field %s in %s", field, data)
		}
	}
	want := map[string]any{
		"expirationDate": "2027-02-19T06:00:00Z", "notAfter": "2027-02-19T06:00:00Z",
		"residualTime": float64(90*86400 - 1),
		"uri":          "file:///" + strings.TrimPrefix(filepath.ToSlash(dir), "/") + "/serving/tls.crt",
		"missing":      false,
		"keyAlgorithm": "ECDSA P-256",
	}
	for field, value := range want {
		if diff := cmp.Diff(value, certificate[field]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", field, diff)
		}
	}
	if doc["kind"] != "ExpirationReport" || doc["generatedAt"] != "2026-11-21T06:00:01Z" {
		t.Errorf("got %s", data)
	}
}

func TestLeft(t *testing.T) {
	for d, want := range map[time.Duration]string{
		90 * day: "90d", 90*day - 1: "89d", 47 * time.Hour: "47h", 119 * time.Minute: "119m", 0: "0m", -3 * day: "-3d",
	} {
		if got := TimeLeft(d); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
}
