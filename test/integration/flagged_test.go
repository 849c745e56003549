// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"example.com/extension-apiserver/pkg/envtest"
)

// flaggedTopic is a test of a server with flags that the shared one does not have.
type flaggedTopic struct {
	name string
	// prepare creates the files that the server needs. It returns the server's flags and the
	// test.
	prepare func(*testing.T) (args []string, test func(*testing.T, *envtest.Environment))
}

// flaggedTopics is filled by the files of the topics. They share one environment, because each
// costs seconds.
var flaggedTopics []flaggedTopic

// TestFlags runs the tests of features that need a flag.
func TestFlags(t *testing.T) {
	var args []string
	tests := map[string]func(*testing.T, *envtest.Environment){}
	for _, topic := range flaggedTopics {
		more, test := topic.prepare(t)
		args = append(args, more...)
		tests[topic.name] = test
	}
	e := envtest.New(t, envtest.Options{ServerArgs: args})
	for _, topic := range flaggedTopics {
		t.Run(topic.name, func(t *testing.T) { tests[topic.name](t, e) })
	}
}
