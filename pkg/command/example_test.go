// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"os"

	"example.com/extension-apiserver/pkg/command"
	"example.com/extension-apiserver/pkg/command/storagecommand"
	"example.com/extension-apiserver/sample"
)

// The main function of a server calls Run.
func ExampleRun() {
	main := func() { os.Exit(command.Run(sample.API(), storagecommand.New)) }
	_ = main
}
