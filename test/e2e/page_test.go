// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/envtest"
)

// page is a page of the documentation, or one of its sections, with a directory in which its
// commands run.
type page struct {
	cluster
	path, text, dir string
	environment     []string
}

// newPage returns a page whose commands find kubectl where the scripts do.
func newPage(c cluster, path string) page {
	c.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		c.Fatal(err)
	}
	search := filepath.Join(root, "bin", envtest.DefaultMinor) + string(os.PathListSeparator) + os.Getenv("PATH")
	return page{cluster: c, path: filepath.Join(root, path), dir: c.TempDir(), environment: []string{"PATH=" + search}}
}

// section returns the page with only the text under a heading.
func (p page) section(heading string) page {
	p.Helper()
	p.text = scripttest.Section(p.T, p.path, heading)
	return p
}

// commands returns the page's ```sh blocks. It fails the test unless there are want of them.
func (p page) commands(want int) []string {
	p.Helper()
	blocks := scripttest.Blocks(p.text)
	if len(blocks) != want {
		p.Fatalf("%s: got %d blocks of commands, want %d, in:\n%s", p.path, len(blocks), want, p.text)
	}
	return blocks
}

// manifest returns the page's only ```yaml block.
func (p page) manifest() string {
	p.Helper()
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(p.text, -1)
	if len(blocks) != 1 {
		p.Fatalf("%s: got %d blocks of YAML, want 1, in:\n%s", p.path, len(blocks), p.text)
	}
	return blocks[0][1]
}

// run runs commands, and returns their output. It also kills their background processes when one
// fails, because they would keep the output open.
func (p page) run(commands string) string {
	p.Helper()
	return scripttest.Shell(p.T, p.dir, "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"+commands, p.environment...)
}

// runForCodes runs commands that print one HTTP status code per line. It compares the codes with
// the comments at the end of the commands.
func (p page) runForCodes(commands string) {
	p.Helper()
	var want []string
	for _, match := range regexp.MustCompile(`(?m)^ask.*# (\d{3})$`).FindAllStringSubmatch(commands, -1) {
		want = append(want, match[1])
	}
	out := p.run(commands)
	got := regexp.MustCompile(`(?m)^\d{3}$`).FindAllString(out, -1)
	if len(want) == 0 || !slices.Equal(got, want) {
		p.Errorf("%s: got the codes %v, want %v; the commands\n%s\nprinted\n%s", p.path, got, want, commands, out)
	}
}

// awaitPermission waits until kube-apiserver grants a permission that was just bound. Servers cache
// a denial for some seconds.
func (c cluster) awaitPermission(user string, spec authorizationv1.SubjectAccessReviewSpec) {
	c.Helper()
	spec.User = user
	c.eventually("a permission of "+user, func(ctx context.Context) error {
		review, err := c.core.AuthorizationV1().SubjectAccessReviews().Create(ctx,
			&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = fmt.Errorf("%s is refused: %+v", spec.String(), review.Status)
		}
		return err
	})
}

// freePort returns a local TCP port that is not in use.
func freePort(c cluster) string {
	c.Helper()
	listener, err := new(net.ListenConfig).Listen(c.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		c.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		c.Fatal(err)
	}
	return port
}
