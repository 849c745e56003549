// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// kubectl runs the command in the namespace of the check, with an object as its input, and
// returns its output.
func (s *session) kubectl(input *unstructured.Unstructured, args ...string) string {
	stdout, stderr, code := s.tryKubectl(input, args...)
	if code != 0 {
		s.fatalf("kubectl %s: exit code %d\n%.2000s%.2000s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

func (s *session) tryKubectl(input *unstructured.Unstructured, args ...string) (stdout, stderr string, code int) {
	return s.startKubectl(input, nil, args...)()
}

// startKubectl starts the command. If also is not nil, it also receives the standard error. The
// returned function waits for the command.
func (s *session) startKubectl(input *unstructured.Unstructured, also io.Writer,
	args ...string) (wait func() (stdout, stderr string, code int)) {
	command := s.r.target.Kubectl
	all := append(append([]string{}, command[1:]...), args...)
	if s.namespace != "" {
		all = append(all, "--namespace="+s.namespace)
	}
	cmd := exec.CommandContext(s.ctx, command[0], all...)
	cmd.WaitDelay = 5 * time.Second // child processes, such as diff or a credential plugin, keep the pipes open
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if also != nil {
		cmd.Stderr = io.MultiWriter(&errs, also)
	}
	if input != nil {
		data, err := input.MarshalJSON()
		if err != nil {
			s.fatalf("%v", err)
		}
		cmd.Stdin = bytes.NewReader(data)
	}
	line := "kubectl " + strings.Join(args, " ")
	if err := cmd.Start(); err != nil {
		s.fatalf("%s: %v", line, err)
	}
	return func() (stdout, stderr string, code int) {
		err := cmd.Wait()
		s.exchanges = append(s.exchanges, Exchange{Request: line,
			Response: truncated([]byte(out.String() + errs.String()))})
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit) && s.ctx.Err() == nil:
			code = exit.ExitCode()
		case err != nil:
			s.fatalf("%s: %v", line, cmp.Or(context.Cause(s.ctx), err))
		}
		return out.String(), errs.String(), code
	}
}

// firstWatch closes seen when kubectl, with -v=6, logs its first watch request.
type firstWatch struct {
	seen chan struct{}
	once sync.Once
}

// Write implements io.Writer. kubectl writes each line with one call.
func (w *firstWatch) Write(data []byte) (int, error) {
	if bytes.Contains(data, []byte("watch=true")) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(data), nil
}

// kubectlWhile runs the command and calls do while the command watches.
func (s *session) kubectlWhile(do func(), args ...string) {
	watching := &firstWatch{seen: make(chan struct{})}
	wait := s.startKubectl(nil, watching, append(args, "-v=6")...)
	select {
	case <-watching.seen:
	case <-s.ctx.Done():
	}
	do()
	if stdout, stderr, code := wait(); code != 0 {
		s.errorf("kubectl %s: exit code %d\n%.2000s%.2000s", strings.Join(args, " "), code, stdout, stderr)
	}
}

// arg returns the resource as an argument of kubectl.
func (s *session) arg() string {
	gvr := s.r.discovered.gvr
	if gvr.Group == "" {
		return gvr.Resource
	}
	return gvr.Resource + "." + gvr.Version + "." + gvr.Group
}

// prints fails the check unless the output contains the texts.
func (s *session) prints(output string, want ...string) {
	for _, w := range want {
		if !strings.Contains(output, w) {
			s.errorf("kubectl printed %.1000q, want %q", output, w)
		}
	}
}

var kubectlChecks = []Check{
	{"kubectl/get", Required, commanding,
		"kubectl get prints a line for the object, and prints it with -o yaml and -o name.",
		[]need{verbs("create", "list"), aKubectl}, func(s *session) {
			name := s.create().GetName()
			s.prints(s.kubectl(nil, "get", s.arg(), name), "NAME", name)
			s.prints(s.kubectl(nil, "get", s.arg(), "--selector="+s.selector(), "--output=yaml"), "kind: "+s.kind(),
				"name: "+name)
			s.prints(s.kubectl(nil, "get", s.arg(), name, "--output=name"), "/"+name)
		}},
	{"kubectl/describe", Required, commanding, "kubectl describe prints the object.",
		[]need{verbs("create", "list"), aKubectl}, func(s *session) {
			name := s.create().GetName()
			s.prints(s.kubectl(nil, "describe", s.arg(), name), name, ownLabel)
		}},
	{"kubectl/explain", Recommended, commanding, "kubectl explain prints the kind, its fields and their descriptions.",
		[]need{aKubectl}, func(s *session) {
			out := s.kubectl(nil, "explain", s.r.discovered.gvr.Resource, "--api-version="+s.apiVersion())
			s.prints(out, "KIND:       "+s.kind(), "DESCRIPTION:", "FIELDS:", "metadata")
			for field := range content(s.object()) {
				s.prints(out, field)
				s.prints(s.kubectl(nil, "explain", s.r.discovered.gvr.Resource+"."+field,
					"--api-version="+s.apiVersion(),
					"--recursive"), "FIELD: "+field)
			}
		}},
	{"kubectl/apply", Required, commanding,
		"kubectl apply creates, reports unchanged objects, configures changed ones, and removes fields that are " +
			"left out.", []need{verbs("create", "patch"), aKubectl}, func(s *session) {
			obj := s.object()
			s.objects = append(s.objects, s.path(obj))
			labelled("a", "1")(obj)
			s.prints(s.kubectl(obj, "apply", "--filename=-"), "created")
			s.prints(s.kubectl(obj, "apply", "--filename=-"), "unchanged")
			unstructured.RemoveNestedField(obj.Object, "metadata", "labels", "a")
			s.prints(s.kubectl(obj, "apply", "--filename=-"), "configured")
			if _, ok := s.get(obj).GetLabels()["a"]; ok {
				s.errorf("the omitted label still exists")
			}
		}},
	{"kubectl/apply-server-side", Required, applying,
		"kubectl apply --server-side takes over the fields of kubectl apply.",
		[]need{verbs("create", "patch"), aKubectl}, func(s *session) {
			obj := s.object()
			s.objects = append(s.objects, s.path(obj))
			labelled("a", "1")(obj)
			s.kubectl(obj, "apply", "--filename=-")
			labelled("a", "2")(obj)
			s.prints(s.kubectl(obj, "apply", "--filename=-", "--server-side"), "serverside-applied")
			if got := s.get(obj).GetLabels()["a"]; got != "2" {
				s.errorf("the label is %q, want 2", got)
			}
		}},
	{"kubectl/diff", Recommended, commanding, "kubectl diff prints a change, and nothing without a change.",
		[]need{verbs("create", "patch"), aKubectl}, func(s *session) {
			obj := s.object()
			s.objects = append(s.objects, s.path(obj))
			s.kubectl(obj, "apply", "--filename=-")
			if stdout, stderr, code := s.tryKubectl(obj, "diff", "--filename=-"); code != 0 || stdout != "" {
				s.errorf("without a change: exit code %d and %.1000q%.1000q, want 0", code, stdout, stderr)
			}
			labelled("a", "changed")(obj)
			if stdout, stderr, code := s.tryKubectl(obj, "diff", "--filename=-"); code != 1 ||
				!strings.Contains(stdout, "a: changed") {
				s.errorf("with a change: exit code %d and %.1000q%.1000q, want 1 and the label", code, stdout, stderr)
			}
		}},
	{"kubectl/validate", Recommended, kep("2885-server-side-unknown-field-validation"),
		"kubectl create rejects a field that is not in the schema, and prints its name.",
		[]need{verbs("create"), aKubectl},
		func(s *session) {
			if stdout, stderr, code := s.tryKubectl(s.withUnknown(), "create", "--filename=-"); code == 0 ||
				!strings.Contains(stderr, "noSuchField") {
				s.errorf("exit code %d and %.1000q%.1000q, want an error about noSuchField", code, stdout, stderr)
			}
		}},
	{"kubectl/wait", Required, commanding, "kubectl wait sees a change and a deletion.",
		[]need{verbs("create", "patch", "delete", "watch"), aKubectl}, func(s *session) {
			obj := s.create()
			name := s.arg() + "/" + obj.GetName()
			s.kubectlWhile(func() {
				s.patch(obj, metadata(map[string]any{"labels": map[string]any{"ready": "yes"}}))
			}, "wait", name, "--for=jsonpath={.metadata.labels.ready}=yes", "--timeout=60s")
			s.kubectlWhile(func() {
				s.want(s.do("DELETE", s.path(obj), query("propagationPolicy", "Background")), 200, 202)
			}, "wait", name, "--for=delete", "--timeout=60s")
		}},
	{"kubectl/delete", Required, commanding, "kubectl delete waits until the object no longer exists.",
		[]need{verbs("create", "delete"), aKubectl}, func(s *session) {
			obj := s.create()
			s.prints(s.kubectl(nil, "delete", s.arg(), obj.GetName()), obj.GetName(), "deleted")
			s.expectRefused(s.do("GET", s.path(obj)), 404)
		}},
	{"kubectl/label", Required, commanding, "kubectl label and annotate change the object.",
		[]need{verbs("create", "patch"), aKubectl}, func(s *session) {
			obj := s.create()
			s.prints(s.kubectl(nil, "label", s.arg(), obj.GetName(), "a=b"), "labeled")
			s.prints(s.kubectl(nil, "annotate", s.arg(), obj.GetName(), "c=d"), "annotated")
			if got := s.get(obj); got.GetLabels()["a"] != "b" || got.GetAnnotations()["c"] != "d" {
				s.errorf("the labels are %v, the annotations %v", got.GetLabels(), got.GetAnnotations())
			}
		}},
	{"kubectl/scale", Required, commanding, "kubectl scale changes the replicas.",
		[]need{verbs("create"), subresource("scale"), aKubectl}, func(s *session) {
			obj := s.create()
			want := s.replicas(obj) + 1
			s.prints(s.kubectl(nil, "scale", s.arg(), obj.GetName(), fmt.Sprintf("--replicas=%d", want)), "scaled")
			if n := s.replicas(obj); n != want {
				s.errorf("the scale has %d replicas, want %d", n, want)
			}
		}},
	{"kubectl/api-resources", Required, commanding, "kubectl api-resources prints the resource with its kind.",
		[]need{aKubectl}, func(s *session) {
			if s.r.discovered.preferred != s.r.discovered.gvr.Version && s.r.discovered.gvr.Group != "" {
				s.skipf("it shows the preferred version, which is %s", s.r.discovered.preferred)
			}
			s.prints(s.kubectl(nil, "api-resources", "--api-group="+s.r.discovered.gvr.Group),
				s.r.discovered.gvr.Resource, s.kind())
		}},
}
