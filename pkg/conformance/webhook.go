// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/cert"
)

// webhooks is an HTTPS server for the webhooks of a run. Each webhook has its own path.
type webhooks struct {
	server *http.Server
	url    string
	ca     []byte // PEM

	mu    sync.Mutex
	hooks map[string]*webhook
}

// webhook is one webhook of the server.
type webhook struct {
	respond  func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse // returns nil for no response
	requests []*admissionv1.AdmissionRequest
}

// newWebhooks serves webhooks at an address with a self-signed certificate.
func newWebhooks(address string) (*webhooks, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String()) // the address has the form HOST:PORT
	cert, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	w := &webhooks{
		url: (&url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)}).String(), hooks: map[string]*webhook{},
		ca: cert,
	}
	w.server = &http.Server{
		// the failed requests belong to the checks
		Handler: w, ReadHeaderTimeout: defaultCheckTimeout, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	go func() { _ = w.server.ServeTLS(listener, "", "") }() // it returns after close
	return w, nil
}

func (w *webhooks) close() { _ = w.server.Close() } // no client waits for a response

// ServeHTTP implements http.Handler.
func (w *webhooks) ServeHTTP(writer http.ResponseWriter, req *http.Request) {
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(http.MaxBytesReader(writer, req.Body, maxResponse)).Decode(review); err != nil ||
		review.Request == nil {
		http.Error(writer, "no AdmissionReview", http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	hook := w.hooks[req.URL.Path]
	if hook != nil {
		hook.requests = append(hook.requests, review.Request)
	}
	w.mu.Unlock()
	if hook == nil || hook.respond(review.Request) == nil {
		http.Error(writer, "no response", http.StatusInternalServerError)
		return
	}
	review.Response = hook.respond(review.Request)
	review.Response.UID, review.Request = review.Request.UID, nil
	writer.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(writer).Encode(review) // the client treats a truncated response as an error
}

// hooked describes a webhook of a check. It receives requests for objects with the label hooked
// of the check.
type hooked struct {
	kind       string // ValidatingWebhookConfiguration or MutatingWebhookConfiguration
	operations []any
	version    string // of the rule; default: the version of the target
	resource   string // of the rule; default: the resource of the target
	policy     string // default: Fail
	respond    func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
}

func allows(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

// webhook creates a webhook. The returned function returns the requests that the webhook has
// received since its last call.
func (s *session) webhook(h hooked) (requests func() []*admissionv1.AdmissionRequest) {
	name := s.name()
	hooks, path := s.r.webhooks, "/"+name
	hook := &webhook{respond: h.respond}
	hooks.mu.Lock()
	hooks.hooks[path] = hook
	hooks.mu.Unlock()
	if h.version == "" {
		h.version = s.r.discovered.gvr.Version
	}
	if h.resource == "" {
		h.resource = s.r.discovered.gvr.Resource
	}
	if h.policy == "" {
		h.policy = "Fail"
	}
	resource := "/apis/admissionregistration.k8s.io/v1/" + strings.ToLower(h.kind) + "s"
	a := s.do("POST", resource, body(map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": h.kind,
		"metadata": map[string]any{"name": name, "labels": s.labels()},
		"webhooks": []any{map[string]any{
			"name": name + ".example.com", "clientConfig": map[string]any{"url": hooks.url + path,
				"caBundle": hooks.ca},
			"rules": []any{map[string]any{
				"apiGroups": []any{s.r.discovered.gvr.Group}, "apiVersions": []any{h.version},
				"operations": h.operations, "resources": []any{h.resource},
			}},
			"objectSelector": map[string]any{"matchLabels": map[string]any{ownLabel: s.label(), "hooked": "yes"}},
			"matchPolicy":    "Equivalent",
			"failurePolicy":  h.policy, "sideEffects": "NoneOnDryRun", "admissionReviewVersions": []any{"v1"},
			"timeoutSeconds": 3,
		}},
	}))
	if a.Code == 403 || a.Code == 404 {
		s.skipf("cannot create webhooks: %s", a)
	}
	s.want(a, 201)
	s.objects = append(s.objects, resource+"/"+name)
	return func() []*admissionv1.AdmissionRequest {
		hooks.mu.Lock()
		defer hooks.mu.Unlock()
		out := hook.requests
		hook.requests = nil
		return out
	}
}

// hookedObject returns an object for which webhooks are called.
func (s *session) hookedObject() *unstructured.Unstructured {
	obj := s.object()
	labelled("hooked", "yes")(obj)
	return obj
}

// untilCalled repeats a request until the webhook is called, because a server needs a moment to
// apply the configuration. It fails the check if the webhook is called more than once for a create.
func (s *session) untilCalled(by func() []*admissionv1.AdmissionRequest,
	send func() *response) (request *admissionv1.AdmissionRequest, a *response) {
	by()
	s.eventually("with the webhook", func() string {
		a = send()
		requests := by()
		if len(requests) == 0 {
			return "it was not called; the response was " + a.String()
		}
		// other requests are retried after a concurrent write
		if len(requests) > 1 && strings.HasPrefix(a.request, "POST ") {
			s.errorf("%s: the webhook was called %d times, want once", a.request, len(requests))
		}
		request = requests[0]
		return ""
	})
	return request, a
}

// dryCreate sends a request that changes nothing.
func (s *session) dryCreate() *response {
	return s.do("POST", s.collection(), body(s.hookedObject()), query("dryRun", "All"))
}

const validating, mutating = "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"

// validator creates a webhook that admits everything.
func (s *session) validator(operation string) func() []*admissionv1.AdmissionRequest {
	return s.webhook(hooked{kind: validating, operations: []any{operation}, respond: allows})
}

var webhookChecks = []Check{
	{"webhooks/request", Required, webhooking,
		"A webhook gets one request, with the kind, the resource, the operation, the user, the name and the object.",
		[]need{verbs("create"), aWebhookAddress}, func(s *session) {
			requests := s.validator("CREATE")
			request, a := s.untilCalled(requests, func() *response {
				a := s.do("POST", s.collection(), body(s.hookedObject()), query("fieldManager", "hooked"))
				s.created(s.want(a, 201))
				return a
			})
			obj := a.object()
			if request.Kind.Kind != s.kind() || request.Resource.Resource != s.r.discovered.gvr.Resource ||
				request.Operation != "CREATE" || request.Name != obj.GetName() ||
				request.Namespace != obj.GetNamespace() || request.UserInfo.Username == "" || request.DryRun != nil &&
				*request.DryRun {
				s.errorf("the webhook was called for %s %s %s %s/%s by %q", request.Operation, request.Kind,
					request.Resource, request.Namespace, request.Name, request.UserInfo.Username)
			}
			var seen map[string]any
			if err := json.Unmarshal(request.Object.Raw, &seen); err != nil ||
				(&unstructured.Unstructured{Object: seen}).GetName() != obj.GetName() {
				s.errorf("the object of the request is %.300q (%v)", request.Object.Raw, err)
			}
		}},
	{"webhooks/user", Required, webhooking,
		"A webhook gets the user of the request, not the proxy that forwards it.",
		[]need{verbs("create"), aWebhookAddress}, func(s *session) {
			user := s.unprivilegedUser()
			s.grant(user, s.rule(s.r.discovered.gvr.Resource, "create"))
			requests := s.validator("CREATE")
			request, _ := s.untilCalled(requests, func() *response {
				return s.do("POST", s.collection(), body(s.hookedObject()), query("dryRun", "All"), as(user))
			})
			if request.UserInfo.Username != user {
				s.errorf("the user of the request is %q, want %s", request.UserInfo.Username, user)
			}
		}},
	{"webhooks/denied", Required, webhooking,
		"A request that a webhook denies is rejected, with the webhook's code and message.",
		[]need{verbs("create"), aWebhookAddress}, func(s *session) {
			requests := s.webhook(hooked{kind: validating, operations: []any{"CREATE"},
				respond: func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					return &admissionv1.AdmissionResponse{Result: refusal(418, "denied by the webhook of the check")}
				}})
			_, a := s.untilCalled(requests, s.dryCreate)
			if status := s.expectRefused(a, 418); !strings.Contains(status.Message,
				"denied by the webhook of the check") {
				s.errorf("the message is %q, want that of the webhook", status.Message)
			}
		}},
	{"webhooks/mutating", Required, webhooking, "Changes of a mutating webhook are returned and stored.",
		[]need{verbs("create"), aWebhookAddress}, func(s *session) {
			requests := s.mutator()
			_, a := s.untilCalled(requests, func() *response {
				a := s.do("POST", s.collection(), body(s.hookedObject()))
				s.created(s.want(a, 201))
				return a
			})
			if got := a.object(); got.GetLabels()["mutated"] != "yes" || s.get(got).GetLabels()["mutated"] != "yes" {
				s.errorf("the labels are %v, want mutated among them", got.GetLabels())
			}
		}},
	{"webhooks/mutating-apply", Required, webhooking, "A mutating webhook changes applied objects too.",
		[]need{verbs("create", "patch"), aWebhookAddress}, func(s *session) {
			requests := s.mutator()
			_, a := s.untilCalled(requests, func() *response {
				return s.apply(s.name(), appliers,
					map[string]any{"hooked": "yes"})
			})
			if got := s.want(a, 201).object(); got.GetLabels()["mutated"] != "yes" {
				s.errorf("the labels are %v, want mutated among them", got.GetLabels())
			}
		}},
	{"webhooks/update", Required, webhooking, "A webhook gets the old and the new object of an update.",
		[]need{verbs("create", "patch"), aWebhookAddress}, func(s *session) {
			obj := s.create(labelled("hooked", "yes"))
			requests := s.validator("UPDATE")
			request, a := s.untilCalled(requests, func() *response {
				return s.do("PATCH", s.path(obj), mergePatch(metadata(
					map[string]any{"labels": map[string]any{"another": s.name()}})))
			})
			s.want(a, 200)
			if before, after := string(request.OldObject.Raw),
				string(request.Object.Raw); request.Operation != "UPDATE" ||
				before == after || !strings.Contains(after, `"another"`) {
				s.errorf("the webhook was called for %s of %.300s to %.300s", request.Operation, before, after)
			}
		}},
	{"webhooks/delete", Required, webhooking, "A webhook is called for a deletion, with the object.",
		[]need{verbs("create", "delete"), aWebhookAddress}, func(s *session) {
			// A webhook that is not deleted must not prevent the deletion of objects.
			requests := s.webhook(hooked{kind: validating, operations: []any{"DELETE"}, policy: "Ignore", respond: allows})
			var obj *unstructured.Unstructured
			request, _ := s.untilCalled(requests, func() *response {
				obj = s.create(labelled("hooked", "yes"))
				return s.want(s.do("DELETE", s.path(obj), query("propagationPolicy", "Background")), 200, 202)
			})
			if request.Operation != "DELETE" || request.Name != obj.GetName() ||
				!strings.Contains(string(request.OldObject.Raw), string(obj.GetUID())) {
				s.errorf("the webhook was called for %s %s with %.300s", request.Operation, request.Name,
					request.OldObject.Raw)
			}
		}},
	{"webhooks/status", Required, webhooking,
		"A webhook for the subresource status is called for the status, and not for the object.",
		[]need{verbs("create", "patch"), subresource("status"), aStatus, aWebhookAddress}, func(s *session) {
			obj := s.create(labelled("hooked", "yes"))
			requests := s.webhook(hooked{kind: validating, operations: []any{"UPDATE"},
				resource: s.r.discovered.gvr.Resource +
					"/status", respond: allows})
			request, _ := s.untilCalled(requests, func() *response {
				return s.want(s.do("PATCH", s.path(obj)+"/status", mergePatch(s.r.target.Status),
					query("dryRun", "All")), 200)
			})
			if request.SubResource != "status" {
				s.errorf("the subresource of the request is %q, want status", request.SubResource)
			}
			s.patch(obj, metadata(map[string]any{"labels": map[string]any{"another": "yes"}}))
			if n := len(requests()); n > 0 {
				s.errorf("the webhook was called for the object")
			}
		}},
	{"webhooks/dry-run", Required, webhooking, "A webhook sees that a request is a dry run.",
		[]need{verbs("create"), aWebhookAddress}, func(s *session) {
			requests := s.validator("CREATE")
			if request, a := s.untilCalled(requests, s.dryCreate); a.Code != 201 || request.DryRun == nil || !*request.DryRun {
				s.errorf("got %s, and the webhook saw no dry run", a)
			}
		}},
	{"webhooks/warnings", Recommended, webhooking, "The client gets the warnings of a webhook.",
		[]need{verbs("create"), aWebhookAddress}, func(s *session) {
			requests := s.webhook(hooked{kind: validating, operations: []any{"CREATE"},
				respond: func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					return &admissionv1.AdmissionResponse{Allowed: true,
						Warnings: []string{"the webhook of the check warns"}}
				}})
			_, a := s.untilCalled(requests, s.dryCreate)
			s.warned(s.want(a, 201), "the webhook of the check warns")
		}},
	{"webhooks/fails-closed", Required, webhooking,
		"A request is rejected if a webhook with the failurePolicy Fail does not respond.",
		[]need{verbs("create"), aWebhookAddress}, func(s *session) {
			requests := s.webhook(hooked{kind: validating, operations: []any{"CREATE"}, respond: none})
			_, a := s.untilCalled(requests, s.dryCreate)
			s.expectRefused(a, 500, 503)
		}},
	{"webhooks/fails-open", Required, webhooking,
		"A request is accepted if a webhook with the failurePolicy Ignore does not respond.",
		[]need{verbs("create"), aWebhookAddress}, func(s *session) {
			requests := s.webhook(hooked{kind: validating, operations: []any{"CREATE"}, policy: "Ignore", respond: none})
			_, a := s.untilCalled(requests, s.dryCreate)
			s.want(a, 201)
		}},
	{"webhooks/versions", Required, webhooking,
		"A webhook for one version is called for writes in another version, with the object in its own version.",
		[]need{verbs("create"), otherVersions, aWebhookAddress}, func(s *session) {
			obj := s.create()
			for _, version := range s.r.discovered.otherVersions {
				requests := s.webhook(hooked{kind: validating, operations: []any{"CREATE"}, version: version,
					respond: allows})
				request, _ := s.untilCalled(requests, s.dryCreate)
				if request.Kind.Version != version || request.RequestKind == nil ||
					request.RequestKind.Version != s.r.discovered.gvr.Version ||
					!strings.Contains(string(request.Object.Raw), s.apiVersionOf(version)) {
					s.errorf("%s: the webhook was called for %s with %.300s", version, request.Kind,
						request.Object.Raw)
				}
			}
			s.get(obj)
		}},
}

// mutator creates a webhook that adds a label.
func (s *session) mutator() func() []*admissionv1.AdmissionRequest {
	return s.webhook(hooked{kind: mutating, operations: []any{"CREATE"},
		respond: func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			patchType := admissionv1.PatchTypeJSONPatch
			return &admissionv1.AdmissionResponse{Allowed: true, PatchType: &patchType,
				Patch: []byte(`[{"op":"add","path":"/metadata/labels/mutated","value":"yes"}]`)}
		}})
}

// none is the function of a webhook that does not respond.
func none(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return nil }

func refusal(code int32, message string) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}
}

// hasWarning reports whether a response has a warning with a text, in the format of RFC 7234,
// section 5.5.
func (a *response) hasWarning(text string) bool {
	return slices.ContainsFunc(a.Header.Values("Warning"), func(warning string) bool {
		return strings.HasPrefix(warning, "299 ") && strings.Contains(warning, text)
	})
}

// warned fails the check unless a response has such a warning.
func (s *session) warned(a *response, text string) {
	if !a.hasWarning(text) {
		s.errorf("%s: the warnings are %q, want one with code 299 and %q", a.request, a.Header.Values("Warning"), text)
	}
}
