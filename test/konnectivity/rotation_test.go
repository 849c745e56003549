// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/envtest"
)

// parts are the parts that can be restarted, in this order.
var parts = []string{"agents", "servers", "kube-apiservers"}

// rotation is a row of the table in docs/konnectivity/rotate.md.
type rotation struct {
	name string
	// bundle selects the installed ca.crt: "same", "both" or "new". leaf selects tls.crt and
	// tls.key.
	bundle, leaf string
	// restarts are the parts of each tunnel to restart.
	restarts [2][]string
}

// rotations parses the table.
func rotations(t *testing.T) []rotation {
	t.Helper()
	var out []rotation
	for line := range strings.Lines(scripttest.Section(t, filepath.Join("..", "..", "docs", "konnectivity", "rotate.md"),
		"Restart order")) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 5 || strings.HasPrefix(line, "| rotation |") {
			continue
		}
		list := func(cell string) []string { return strings.Split(strings.TrimSuffix(cell, " |"), ", ") }
		out = append(out, rotation{strings.TrimPrefix(cells[0], "| "), cells[1], cells[2],
			[2][]string{list(cells[3]), list(cells[4])}})
	}
	if len(out) != 4 {
		t.Fatalf("docs/konnectivity/rotate.md has %d rotations in its table, want new leaves and three steps to other "+
			"CAs: %+v", len(out), out)
	}
	return out
}

// generation is a directory with the key pairs of konnectivity.
type generation string

// newGeneration issues key pairs for the hosts of the environment, from the CAs in sameCAs, or
// from new CAs if it is empty.
func newGeneration(t *testing.T, e *envtest.Environment, sameCAs generation) generation {
	t.Helper()
	dir := t.TempDir()
	if sameCAs != "" {
		for _, ca := range []string{certs.KonnectivityServerCADir, certs.KonnectivityAgentCADir} {
			sameCAs.copyTo(t, filepath.Join(dir, ca), ca, certs.CertFile, certs.KeyFile)
		}
	}
	names := []string{envtest.NodeAddress}
	for _, k := range e.KubeAPIServers {
		names = append(names, host(t, k))
	}
	if _, err := certs.Init(t.Context(), certs.InitOptions{
		Dir: dir, Service: certs.Service{Name: envtest.ServiceName, Namespace: envtest.Namespace},
		With:                         []string{certs.SetKonnectivity},
		KonnectivityAgentServerNames: names,
	}); err != nil {
		t.Fatal(err)
	}
	return generation(dir)
}

// copyTo copies files of a key pair, or of a CA, into a directory.
func (g generation) copyTo(t *testing.T, dir, pair string, names ...string) {
	t.Helper()
	files := map[string]certs.File{}
	for _, name := range names {
		files[name] = certs.File{Data: g.read(t, pair, name), Mode: 0o600}
	}
	if err := certs.WriteFiles(dir, files); err != nil {
		t.Fatal(err)
	}
}

func (g generation) read(t *testing.T, pair, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(string(g), pair, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// trusted returns the generations whose CAs are in the ca.crt of the row.
func (r *rotation) trusted(t *testing.T, same, next generation) []generation {
	t.Helper()
	switch r.bundle {
	case "same":
		return []generation{same}
	case "both":
		return []generation{same, next}
	case "new":
		return []generation{next}
	}
	t.Fatalf("docs/konnectivity/rotate.md, row %q: ca.crt is %q, want same, both or new", r.name, r.bundle)
	return nil
}

// install gives all sides the files of the row.
func (r *rotation) install(t *testing.T, e *envtest.Environment, same, next generation) {
	t.Helper()
	leaf, found := map[string]generation{"same": same, "new": next}[r.leaf]
	if !found {
		t.Fatalf("docs/konnectivity/rotate.md, row %q: tls.crt is %q, want same or new", r.name, r.leaf)
	}
	for _, pair := range []string{
		certs.KonnectivityServerDir, certs.KonnectivityAPIServerClientDir, certs.KonnectivityAgentServerDir,
		certs.KonnectivityAgentDir,
	} {
		var bundle []byte
		for _, g := range r.trusted(t, same, next) {
			bundle = append(bundle, g.read(t, pair, certs.BundleFile)...)
		}
		leaf.install(t, e, pair, bundle)
	}
}

// install gives all sides the certificate and key of a pair, and a ca.crt.
func (g generation) install(t *testing.T, e *envtest.Environment, pair string, bundle []byte) {
	t.Helper()
	if err := certs.WriteFiles(filepath.Join(e.PKI(), pair), map[string]certs.File{
		certs.CertFile:   {Data: g.read(t, pair, certs.CertFile), Mode: 0o600},
		certs.KeyFile:    {Data: g.read(t, pair, certs.KeyFile), Mode: 0o600},
		certs.BundleFile: {Data: bundle, Mode: 0o600},
	}); err != nil {
		t.Fatal(err)
	}
}

// restart restarts the parts of the row one after the other, and waits for each.
func (r *rotation) restart(t *testing.T, e *envtest.Environment) {
	t.Helper()
	for _, wanted := range slices.Concat(r.restarts[0], r.restarts[1]) {
		if !slices.Contains(parts, wanted) {
			t.Fatalf("docs/konnectivity/rotate.md, row %q: got %q, want some of %q", r.name, wanted, parts)
		}
	}
	configs, err := e.AdminConfigs()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		began := time.Now()
		for i, k := range e.KubeAPIServers {
			if !slices.Contains(r.restarts[i], part) {
				continue
			}
			if err := restart(t, e, k, part); err != nil {
				t.Fatalf("restart %s of %s: %v", part, k.URL, err)
			}
		}
		for i, took := range recovered(t, configs, began) {
			if slices.Contains(r.restarts[i], part) {
				t.Logf("after the restart of %s: %s responds after %.1f s", part, e.KubeAPIServers[i].URL,
					took.Seconds())
			}
		}
	}
}

func restart(t *testing.T, e *envtest.Environment, k *envtest.KubeAPIServer, part string) error {
	switch part {
	case "agents":
		k.Agents[0].Kill()
		return k.Agents[0].Start(t.Context())
	case "servers":
		return errors.Join(k.ProxyServer.Stop(), k.ProxyServer.Start(t.Context()))
	default:
		return e.RestartKubeAPIServer(t.Context(), k)
	}
}

// TestRotation follows the table in docs/konnectivity/rotate.md, with a tunnel for each of its
// columns. It checks that the API responds after each restart, and that the old CAs are accepted
// until the last row and no longer.
func TestRotation(t *testing.T) {
	t.Parallel()
	e := start(t, envtest.Options{Network: envtest.EndpointRouting, Tunnels: []envtest.Tunnel{
		{Mode: envtest.HTTPConnectOverTCP, Agents: 1, ServerCount: 1, MutualTLS: true},
		{Mode: envtest.GRPCOverUDS, Agents: 1, ServerCount: 1},
	}})
	configs, err := e.AdminConfigs()
	if err != nil {
		t.Fatal(err)
	}
	first, other := newGeneration(t, e, generation(e.PKI())), newGeneration(t, e, "")
	for i, r := range rotations(t) {
		if !t.Run(r.name, func(t *testing.T) {
			next := other
			if i == 0 {
				next = first
			}
			before := shown(t, e, first, other)
			r.install(t, e, first, next)
			for _, config := range configs {
				responds(t, e, config)
			}
			if now := shown(t, e, first, other); !slices.Equal(now, before) {
				t.Errorf("the servers show certificates %v before any restart, want still %v", now, before)
			}
			r.restart(t, e)
			want := serial(certificate(t, generation(e.PKI()), certs.KonnectivityAgentServerDir).Leaf)
			if now := shown(t, e, first, other); !slices.Equal(now, []string{want, want}) {
				t.Errorf("the servers show certificates %v after the restarts, want both %s", now, want)
			}
			for _, g := range []generation{first, other} {
				accepted(t, e, g, slices.Contains(r.trusted(t, first, next), g))
			}
		}) {
			return
		}
	}
	t.Run("the old CAs are refused", func(t *testing.T) {
		accepted(t, e, other, true)
		if accepted(t, e, first, false); !t.Failed() {
			refusedByKubeAPIServer(t, e, first)
			refusedByAgents(t, e, first)
		}
	})
}
