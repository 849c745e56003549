// SPDX-License-Identifier: Apache-2.0

// Command controller is an example controller for the kind Widget: for a controller, an aggregated
// API is like any other API. It uses the generated clients, as controllers of built-in kinds do;
// with controller-runtime it would look as for a CustomResourceDefinition. rbac.yaml has all the
// permissions that it needs.
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

// run reconciles widgets until the context ends.
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
