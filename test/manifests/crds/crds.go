// SPDX-License-Identifier: Apache-2.0

// Package crds imports the smallest packages of the modules with CustomResourceDefinitions, so
// that go mod tidy keeps them. test/manifests finds their folders with go mod download.
package crds

import (
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager"          // deploy/crds
	_ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil" // example/prometheus-operator-crd
)
