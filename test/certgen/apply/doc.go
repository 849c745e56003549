// SPDX-License-Identifier: Apache-2.0

// Package apply runs certgen apply and certgen verify against a real control plane. It tests which
// fields they write, which they leave alone, and what they find.
package apply
