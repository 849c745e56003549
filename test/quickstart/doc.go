// SPDX-License-Identifier: Apache-2.0

// Package quickstart does what docs/quickstart.md says, word for word: a team's first day; and what comes later, new versions of the kit.
// Its tests have the build tag quickstart, because they take minutes and a container engine: make test-quickstart.
package quickstart
