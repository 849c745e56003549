// SPDX-License-Identifier: Apache-2.0

package apitesting_test

import (
	"testing"

	"example.com/extension-apiserver/pkg/apitesting"
	"example.com/extension-apiserver/sample"
)

// A project calls RoundTrip in its own test with its own API.
func ExampleRoundTrip() {
	_ = func(t *testing.T) { apitesting.RoundTrip(t, sample.API()) }
}
