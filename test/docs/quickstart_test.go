// SPDX-License-Identifier: Apache-2.0

//go:build quickstart

package docs

import (
	"regexp"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/scripttest"
)

const kit = "example.com/extension-apiserver"

// contains fails for each pattern that is not in what was printed.
func contains(t *testing.T, what, out string, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("%s: got no %q in\n%s", what, pattern, out)
		}
	}
}

// TestQuickstart follows the quickstart and the pages of docs/build in one project.
func TestQuickstart(t *testing.T) {
	began := time.Now()
	r := newReader(t)
	r.follow(t, "start/quickstart.md", "1. Create a project", "2. Run it")
	t.Logf("from an empty directory to kubectl get: %.0f s", time.Since(began).Seconds())
	r.follow(t, "start/quickstart.md", "3. Change the API")

	t.Setenv("GOPROXY", "off") // everything was downloaded
	r.follow(t, "build/add-a-kind.md")
	if out := scripttest.Shell(t, r.dir, "git grep -il backuptarget -- ':!kit' || true"); out != "" {
		t.Errorf("files that mention the deleted kind:\n%s", out)
	}
	r.follow(t, "build/test-and-ci.md")
	r.follow(t, "build/subresources-and-streams.md")
	r.follow(t, "build/kinds-without-storage.md")
	r.follow(t, "build/admission.md")
	r.follow(t, "build/controllers.md")
	r.follow(t, "build/versions-and-conversion.md")
	// The controllers of a renamed group work.
	scripttest.Shell(t, r.dir, "go tool scaffold group rename backup.example.org archive.example.org\n"+
		"! grep -r backup.example.org cmd manifests objects\ngo test ./cmd/...")
	scripttest.Commit(t, r.dir)
	scripttest.Shell(t, r.dir, "make verify")
	out := scripttest.Shell(t, r.dir, "sed -i '/out.Summary = /d' apis/backup/v2/conversion.go\n! go test -run TestRoundTrip .")
	contains(t, "a conversion that loses a field", out, "--- FAIL: TestRoundTrip/archive.example.org/v2/BackupPlan ",
		`-.*Description:`)
}

// TestDeployed follows the rest of the quickstart.
func TestDeployed(t *testing.T) {
	r := newReader(t)
	r.follow(t, "start/quickstart.md", "1. Create a project")
	t.Cleanup(func() { scripttest.Shell(t, r.dir, "make kind-down") }) // if a step fails before it
	scripttest.Shell(t, r.dir, "git remote add origin https://somebody:secret@git.example.org/platform/backup")
	t.Setenv("IMAGE_LICENSES", "MIT")
	r.follow(t, "start/quickstart.md", "4. Deploy it to kind")
	labels := scripttest.Shell(t, r.dir,
		`grep -ahoE '"org.opencontainers.image.(source|licenses)":"[^"]*"' bin/images/backup-apiserver/blobs/sha256/*`)
	contains(t, "labels of the server's image", labels,
		`(?m)^"org.opencontainers.image.source":"https://git.example.org/platform/backup"$`,
		`(?m)^"org.opencontainers.image.licenses":"MIT"$`)
	t.Setenv("GOPROXY", "off") // everything was downloaded
	r.follow(t, "start/quickstart.md", "5. Upgrade the kit")
	scripttest.Shell(t, r.dir, "make verify")
}
