// SPDX-License-Identifier: Apache-2.0

// Command extension-apiserver serves the sample API.
package main

import (
	"os"

	"example.com/extension-apiserver/pkg/command"
	"example.com/extension-apiserver/pkg/command/storagecommand"
	"example.com/extension-apiserver/sample"
)

func main() { os.Exit(command.Run(sample.API(), storagecommand.New)) }
