// SPDX-License-Identifier: Apache-2.0

package apitesting_test

import (
	"testing"

	"example.com/extension-apiserver/pkg/apitesting"
	"example.com/extension-apiserver/test/fixture"
)

// TestRoundTrip: the fixture passes what every API should.
func TestRoundTrip(t *testing.T) {
	apitesting.RoundTrip(t, fixture.API())
}
