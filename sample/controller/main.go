// SPDX-License-Identifier: Apache-2.0

// Command controller is a controller for the kind Widget, to copy from: an aggregated API is an API like any other to a
// controller. It uses the generated clients, as those of built-in kinds do; with controller-runtime it would be as for
// a CustomResourceDefinition. rbac.yaml has the rights that it needs, all of them.
//
// Against make run: go run ./sample/controller --kubeconfig .run/kubeconfig
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"

	"example.com/extension-apiserver/sample/apis/client/clientset/versioned"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "",
		"File with the way to kube-apiserver; without it, the ServiceAccount of the pod is used.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig); err != nil {
		fmt.Fprintf(os.Stderr, "controller: %v\n", err)
		os.Exit(1)
	}
}

// run controls widgets until the context ends.
func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("find kube-apiserver: %w", err)
	}
	clients, err := versioned.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make clients: %w", err)
	}
	return newController(clients).run(ctx)
}
