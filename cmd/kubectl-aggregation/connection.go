// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// loadConfig returns the client configuration, found by the loading rules of kubectl.
func loadConfig(kubeconfig string, overrides *clientcmd.ConfigOverrides) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		if clientcmd.IsEmptyConfig(err) {
			err = errors.New("no kubeconfig found; set --kubeconfig or KUBECONFIG")
		}
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return config, nil
}
