// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
)

// TestSigner checks that with the component in docs/operate/remote-signer.md both the Job and the
// CronJob use the signer, with the Secret of that page.
func TestSigner(t *testing.T) {
	t.Parallel()
	_, block, found := strings.Cut(readFile(t, filepath.Join("..", "..", "docs", "operate", "remote-signer.md")),
		"```yaml\n# signer/kustomization.yaml\n")
	block, _, _ = strings.Cut(block, "```")
	if !found {
		t.Fatal("docs/operate/remote-signer.md has no signer/kustomization.yaml")
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "signer", "kustomization.yaml"), block)
	writeFile(t, filepath.Join(dir, "kustomization.yaml"),
		"resources: ["+relative(t, dir, filepath.Join(sampleFolder, "api"))+"]\ncomponents: ["+strings.Join([]string{
			relative(t, dir, filepath.Join(folder, "components", "certificates-certgen")), "signer",
			relative(t, dir, filepath.Join(sampleFolder, "names")), relative(t, dir, filepath.Join(folder, "names")),
		}, ", ")+"]\n")
	objects := parse(t, kustomize(t, dir))
	jobs, cronJobs := only[batchv1.Job](t, objects, "Job"), only[batchv1.CronJob](t, objects, "CronJob")
	if len(jobs) != 1 || len(cronJobs) != 1 {
		t.Fatalf("got %d Jobs and %d CronJobs, want one of each", len(jobs), len(cronJobs))
	}
	for _, job := range []batchv1.JobSpec{jobs[0].Spec, cronJobs[0].Spec.JobTemplate.Spec} {
		pod := job.Template.Spec
		if args := pod.Containers[0].Args; !slices.Contains(args, "--signer=https://signer.example.com:8888") ||
			!slices.Contains(args, "renew") {
			t.Errorf("got %q, want certgen renew with the signer", args)
		}
		if last := pod.Volumes[len(pod.Volumes)-1]; last.Secret == nil || last.Secret.SecretName != "certgen-signer" {
			t.Errorf("got the volume %v, want the Secret certgen-signer", last)
		}
	}
}
