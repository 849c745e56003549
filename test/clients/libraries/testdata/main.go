// SPDX-License-Identifier: Apache-2.0

// Command consumer writes a widget with the typed clients, and reads it with an informer and with
// controller-runtime.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workshopv1 "platform.example.org/workshop-client/client/applyconfiguration/workshop/v1"
	"platform.example.org/workshop-client/client/clientset/versioned"
	"platform.example.org/workshop-client/client/informers/externalversions"
	v1 "platform.example.org/workshop-client/workshop/v1"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, namespace, name string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	clients, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	configuration := workshopv1.Widget(name, namespace).WithSpec(
		workshopv1.WidgetSpec().WithModel("m").WithParts(workshopv1.WidgetPart().WithName("p")))
	applied, err := clients.WorkshopV1().Widgets(namespace).Apply(ctx, configuration,
		metav1.ApplyOptions{FieldManager: "consumer"})
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	if extracted, err := workshopv1.ExtractWidget(applied, "consumer"); err != nil || *extracted.Spec.Model != "m" {
		return fmt.Errorf("extract: %v, %w", extracted, err)
	}

	factory := externalversions.NewSharedInformerFactoryWithOptions(clients, 0,
		externalversions.WithNamespace(namespace))
	lister := factory.Workshop().V1().Widgets().Lister()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if _, err := lister.Widgets(namespace).Get(name); err != nil {
		return fmt.Errorf("list with an informer: %w", err)
	}

	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	widget := &v1.Widget{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, widget); err != nil {
		return fmt.Errorf("get with controller-runtime: %w", err)
	}
	widget.Spec.Grade = v1.WidgetGradePremium
	if err := c.Update(ctx, widget); err != nil || widget.Generation != 2 {
		return fmt.Errorf("update with controller-runtime: generation %d, %w", widget.Generation, err)
	}
	return nil
}
