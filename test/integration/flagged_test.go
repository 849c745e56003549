// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"example.com/extension-apiserver/pkg/envtest"
)

// flaggedTopic needs a server with flags that the shared one has not.
type flaggedTopic struct {
	name string
	// prepare makes what the server is to be given, and returns the flags for it and the test.
	prepare func(*testing.T) (args []string, test func(*testing.T, *envtest.Environment))
}

// flaggedTopics is filled by the files of the topics. They share one environment, since each costs seconds.
var flaggedTopics []flaggedTopic

// TestFlags runs the tests of what the server does only when a flag says so.
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
