// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// consoleOutput is the expected output of a console for an input. The fuzz test compares the
// console with it.
type consoleOutput struct {
	out, errOut string
	// ended is true if the console ends before its input does. tooLong is true if it ends because
	// a line is too long.
	ended, tooLong bool
}

func expectedOutput(input string) consoleOutput {
	var s consoleOutput
	var out, errOut strings.Builder
	for line := range strings.Lines(input) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) > maxConsoleLine {
			s.ended, s.tooLong = true, true
			break
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if words[0] == "exit" {
			s.ended = true
			break
		}
		switch words[0] {
		case "echo":
			out.WriteString(strings.Join(words[1:], " ") + "\n")
		case "show":
			out.WriteString("demo/w: model pendulum, grade Standard, 1 parts, 1 ready\n")
		case "help":
			out.WriteString(consoleHelp)
		default:
			errOut.WriteString(fmt.Sprintf("unknown command %q, expected one of:\n", words[0]) + consoleHelp)
		}
	}
	s.out, s.errOut = out.String(), errOut.String()
	return s
}

// FuzzWidgetConsoleLines checks that the console writes exactly one response per line, however
// the input is split into reads, and that a line that is too long ends the console before it is
// buffered completely.
func FuzzWidgetConsoleLines(f *testing.F) {
	for _, input := range []string{
		"", "\n", "echo a\necho b", "show\nhelp\ndance\nexit\necho b\n", "echo \xff\x00\r\n",
		"\xc2\x85echo\u2003a\u00a0b\n", "EXIT\n", "exit now\n", " exit\necho b",
		strings.Repeat("x", maxConsoleLine), strings.Repeat("x", maxConsoleLine) + "\necho b\n",
		strings.Repeat("x", maxConsoleLine) + "\r\n",
		strings.Repeat("x", maxConsoleLine+1), "echo a\n" + strings.Repeat(" ", maxConsoleLine+1) + "\necho b\n",
	} {
		f.Add(input, false)
		f.Add(input, true)
	}
	f.Fuzz(func(t *testing.T, input string, byByte bool) {
		want := expectedOutput(input)
		source := strings.NewReader(input)
		var out, errOut bytes.Buffer
		var err error
		if byByte {
			err = runConsole(t.Context(), iotest.OneByteReader(source), &out, &errOut, getStored)
		} else {
			err = runConsole(t.Context(), source, &out, &errOut, getStored)
		}
		if apierrors.IsBadRequest(err) != want.tooLong || (err != nil) != want.tooLong {
			t.Errorf("got error %v, want one about the line: %t", err, want.tooLong)
		}
		if out.String() != want.out || errOut.String() != want.errOut {
			t.Errorf("%q: got output %q and error output %q, want %q and %q", input, &out, &errOut,
				want.out, want.errOut)
		}
		if kept := len(input) - source.Len() - strings.LastIndex(input[:len(input)-source.Len()],
			"\n") - 1; kept > maxConsoleLine+1 {
			t.Errorf("got %d bytes of a line, want no more than show that it is too long", kept)
		}
	})
}
