// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"example.com/extension-apiserver/pkg/envtest"
)

// auditLogs are the paths of both servers' audit logs. An event is written before its response.
type auditLogs struct{ kube, server string }

// audited writes the audit policies to dir, and returns the options of an environment with both
// audit logs. kube-apiserver's log has each SubjectAccessReview of the server with its body. ttl
// is how long the server caches decisions.
func audited(dir, ttl string) (auditLogs, envtest.Options, error) {
	l := auditLogs{filepath.Join(dir, "kube.log"), filepath.Join(dir, "server.log")}
	const head = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n"
	sender := "system:serviceaccount:" + envtest.Namespace + ":extension-apiserver"
	policies := map[string]string{
		l.kube: head +
			"- {level: RequestResponse, users: ['" + sender +
			"'], resources: [{group: authorization.k8s.io, resources: [subjectaccessreviews]}]}\n" +
			"- {level: Metadata, resources: [{group: " + group + "}]}\n" +
			"- {level: None}\n",
		l.server: head +
			"- {level: Metadata, resources: [{group: " + group + "}]}\n" +
			"- {level: None}\n",
	}
	for log, policy := range policies {
		if err := os.WriteFile(log+".policy", []byte(policy), 0o600); err != nil {
			return l, envtest.Options{}, err
		}
	}
	return l, envtest.Options{
		KubeAPIServerArgs: []string{"--audit-policy-file=" + l.kube + ".policy", "--audit-log-path=" + l.kube},
		ServerArgs: []string{
			"--audit-policy-file=" + l.server + ".policy", "--audit-log-path=" + l.server,
			"--authorization-webhook-cache-authorized-ttl=" + ttl,
			"--authorization-webhook-cache-unauthorized-ttl=" + ttl,
		},
	}, nil
}

// events reads an audit log. The last line may be incomplete.
func events(log string) ([]auditv1.Event, error) {
	data, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	var all []auditv1.Event
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("an event that is not whole: %w: %s", err, line)
		}
		all = append(all, event)
	}
	return all, nil
}

// checks returns the server's SubjectAccessReviews and their decisions by user, in order. It first
// causes a SubjectAccessReview of its own and waits for it, so that all earlier ones are included.
func (l auditLogs) checks(t *testing.T, e *envtest.Environment) map[string][]authorizationv1.SubjectAccessReview {
	t.Helper()
	marker := unique("marker")
	if a := direct(t, e, &user.DefaultInfo{Name: marker}).Do(t, http.MethodGet, "/metrics", nil,
		nil); a.Status != http.StatusForbidden {
		t.Fatalf("GET /metrics as an unprivileged user: %s, want 403", a)
	}
	var reviews map[string][]authorizationv1.SubjectAccessReview
	e.Eventually(t, "the event of the last check", envtest.WaitTimeout, func(context.Context) error {
		reviews = map[string][]authorizationv1.SubjectAccessReview{}
		all, err := events(l.kube)
		if err != nil {
			return err
		}
		for _, event := range all {
			if event.ObjectRef == nil || event.ObjectRef.Resource != "subjectaccessreviews" ||
				event.ResponseObject == nil {
				continue
			}
			var review authorizationv1.SubjectAccessReview
			if err := json.Unmarshal(event.ResponseObject.Raw, &review); err != nil {
				return err
			}
			reviews[review.Spec.User] = append(reviews[review.Spec.User], review)
		}
		if len(reviews[marker]) != 1 {
			return fmt.Errorf("%d checks about the user %s, want 1", len(reviews[marker]), marker)
		}
		return nil
	})
	return reviews
}

// specs returns the specs of the reviews.
func specs(reviews []authorizationv1.SubjectAccessReview) []authorizationv1.SubjectAccessReviewSpec {
	var all []authorizationv1.SubjectAccessReviewSpec
	for _, review := range reviews {
		all = append(all, review.Spec)
	}
	return all
}

// about returns a spec with only the user's attributes. Both servers add the group of all
// authenticated users.
func about(who *user.DefaultInfo) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: who.Name, UID: who.UID, Groups: append(slices.Clone(who.Groups), user.AllAuthenticated),
	}
	for key, values := range who.Extra {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[key] = values
	}
	return spec
}
