// SPDX-License-Identifier: Apache-2.0

// Command widgetcontroller is a controller for the kind Widget, to copy from: an aggregated API is an API like any other to
// a controller, and this one is written with controller-runtime as for a CustomResourceDefinition. rbac.yaml has the rights
// that it needs, all of them.
//
// Against make run: go run ./test/widgetcontroller --kubeconfig .run/kubeconfig
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "example.com/extension-apiserver/pkg/apis/workshop/v1"
)

func main() {
	// controller-runtime has the flag --kubeconfig; without it, the ServiceAccount of the pod is used.
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	config, err := ctrl.GetConfig()
	if err == nil {
		err = run(ctrl.SetupSignalHandler(), config)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "widgetcontroller: %v\n", err)
		os.Exit(1)
	}
}

// run controls widgets until the context ends.
func run(ctx context.Context, config *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("make scheme: %w", err)
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		// No port is opened. A controller with several replicas also wants LeaderElection, and rights for leases.
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return fmt.Errorf("make manager: %w", err)
	}
	// No filter for changes of the generation: a status that somebody else overwrote is put right too.
	if err := ctrl.NewControllerManagedBy(manager).For(&v1.Widget{}).Complete(&reconciler{manager.GetClient()}); err != nil {
		return fmt.Errorf("make controller: %w", err)
	}
	return manager.Start(ctx)
}
