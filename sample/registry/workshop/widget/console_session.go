// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/pkg/registry/subresource"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// maxConsoleLine is the maximum length of a line in bytes. It limits the memory that a client can
// occupy.
const maxConsoleLine = 4096

// consoleCommands lists the commands of a console. help prints them.
var consoleCommands = []struct {
	name, help string
	run        func(out io.Writer, words []string, get func() (*v1.Widget, error)) error
}{
	{"echo", "echo WORDS: say them", func(out io.Writer, words []string, _ func() (*v1.Widget, error)) error {
		_, err := fmt.Fprintln(out, strings.Join(words, " "))
		return err
	}},
	{"show", "show: the widget as it is now", func(out io.Writer, _ []string,
		get func() (*v1.Widget, error)) error {
		widget, err := get()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s/%s: model %s, grade %s, %d parts, %d ready\n",
			widget.Namespace, widget.Name, widget.Spec.Model, widget.Spec.Grade, len(widget.Spec.Parts),
			widget.Status.ReadyReplicas)
		return err
	}},
}

// newConsoleSession returns the session of the subresource console, an exec-like streaming
// session. Each read of the widget requires the user's permission to get it, which the permission
// to create its console does not include.
func newConsoleSession(widgets rest.Getter, a authorizer.Authorizer) subresource.Session {
	return func(ctx context.Context, name string, in io.Reader, out, errOut io.Writer) error {
		return runConsole(ctx, in, out, errOut, func() (*v1.Widget, error) {
			if err := subresource.EnsureAuthorized(ctx, a, "get", ""); err != nil {
				return nil, err
			}
			obj, err := widgets.Get(ctx, name, &metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return obj.(*v1.Widget), nil
		})
	}
}

// runConsole responds to each line of the input until the input ends, a line says exit, or ctx is
// done.
func runConsole(ctx context.Context, in io.Reader, out, errOut io.Writer, get func() (*v1.Widget, error)) error {
	lines := bufio.NewReaderSize(in, maxConsoleLine+len("\n"))
	for ctx.Err() == nil {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return apierrors.NewBadRequest(fmt.Sprintf("a line is longer than %d bytes", maxConsoleLine))
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if words := strings.Fields(string(line)); len(words) > 0 {
			if words[0] == "exit" {
				return nil
			}
			if err := runCommand(out, errOut, words, get); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
	return ctx.Err()
}

// runCommand runs one command. It returns an error if the session cannot continue, such as when
// the widget was deleted or the client disconnected. A missing permission is reported to the
// client instead.
func runCommand(out, errOut io.Writer, words []string, get func() (*v1.Widget, error)) error {
	var known []string
	for _, command := range consoleCommands {
		if command.name == words[0] {
			err := command.run(out, words[1:], get)
			if apierrors.IsForbidden(err) {
				_, err = fmt.Fprintln(errOut, err)
			}
			return err
		}
		known = append(known, command.help)
	}
	known = append(known, "exit: leave")
	if words[0] == "help" {
		_, err := fmt.Fprintln(out, strings.Join(known, "\n"))
		return err
	}
	_, err := fmt.Fprintf(errOut, "unknown command %q, expected one of:\n%s\n", words[0], strings.Join(known, "\n"))
	return err
}
