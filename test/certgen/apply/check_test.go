// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/cluster/live"
)

func has(r *verify.Report, id string, severity catalogue.Severity, evidence string) bool {
	for _, f := range r.Findings {
		if f.ID == id && f.Severity == severity && strings.Contains(f.Evidence, evidence) {
			return true
		}
	}
	return false
}

func checkFaults(l *suite) {
	// A placeholder for a caBundle: requests fail, and the condition can stay True.
	l.patch(`{"spec":{"caBundle":"Cg=="}}`)
	l.env.Eventually(l.T, "K02 and K08", waitLimit, func(context.Context) error {
		if r := l.check(l.allOptions()); !has(r, "K02", catalogue.Error, "placeholder") ||
			!has(r, "K08", catalogue.Error, "") {
			return fmt.Errorf("got %+v", r.Findings)
		}
		return nil
	})
	// A foreign CA.
	_, bundle := l.nextDir()
	if err := l.changeCABundle(bundle[1:], bundle[:1]); !isOwned(err, false) {
		l.Errorf("got %v, want the other manager named", err)
	}
	o := l.options()
	o.ForceConflicts = true
	l.mustApply(o)
	if err := l.changeCABundle(bundle[1:], bundle[:1]); err != nil {
		l.Fatal(err)
	}
	if r := l.check(l.allOptions()); !has(r, "K03", catalogue.Error, "unknown authority") ||
		!has(r, "K04", catalogue.Warning, "is not in the ca.crt of") {
		l.Errorf("got %+v, want K03 and K04", r.Findings)
	}
	o.ReplaceTrust = true
	l.mustApply(o)
	l.healthy(l.allOptions())
	// Another certificate is stored than served, and another front proxy is not trusted.
	other := l.TempDir()
	if _, err := certs.Init(l.Context(), certs.InitOptions{Dir: other, Service: l.service}); err != nil {
		l.Fatal(err)
	}
	r := l.check(live.Options{Dir: other, ProxyClient: filepath.Join(other, certs.FrontProxyClientDir)})
	if !has(r, "K06", catalogue.Error, filepath.Join(other, certs.ServingDir)+" contains sha256 ") ||
		!has(r, "P11", catalogue.Error, "the endpoint responded with 401") {
		l.Errorf("got %+v, want K06 and P11", r.Findings)
	}
	// A stopped server.
	if err := l.env.StopServer(l.env.Servers[1]); err != nil {
		l.Fatal(err)
	}
	if r := l.check(l.allOptions()); !has(r, "K12", catalogue.Warning, "refused") {
		l.Errorf("got %+v, want K12", r.Findings)
	}
	if err := l.env.StartServer(l.Context(), l.env.Servers[1]); err != nil {
		l.Fatal(err)
	}
	l.healthy(l.allOptions())
}
