// SPDX-License-Identifier: Apache-2.0

package apitesting_test

import (
	"testing"

	"example.com/extension-apiserver/pkg/apitesting"
	"example.com/extension-apiserver/sample"
)

// TestRoundTrip checks that the objects of the sample API survive a round trip.
func TestRoundTrip(t *testing.T) {
	apitesting.RoundTrip(t, sample.API())
}
