// SPDX-License-Identifier: Apache-2.0

// Package library tests the kit as a team's own project meets it: as a module, without this checkout.
package library
