// SPDX-License-Identifier: Apache-2.0

// Package quickstart does what docs/quickstart.md says, word for word: a team's first day. Its test has the build tag quickstart, because
// it takes minutes: make test-quickstart.
package quickstart
