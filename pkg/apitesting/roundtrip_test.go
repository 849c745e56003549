// SPDX-License-Identifier: Apache-2.0

package apitesting_test

import (
	"testing"

	"example.com/extension-apiserver/pkg/apitesting"
	"example.com/extension-apiserver/sample"
)

// TestRoundTrip: the sample passes what every API should.
func TestRoundTrip(t *testing.T) {
	apitesting.RoundTrip(t, sample.API())
}
