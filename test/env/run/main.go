// SPDX-License-Identifier: Apache-2.0

// Command run is `make run`: it starts the environment of the tests on one directory, tells how to use it, and keeps it
// running until it is interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"example.com/extension-apiserver/test/env"
)

func main() {
	dir := flag.String("dir", ".run", "Directory of the state; a second run finds what the first stored.")
	once := flag.Bool("once", false, "Stop when everything is ready, for measurements.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, *dir, *once); err != nil {
		fmt.Fprintf(os.Stderr, "run: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, once bool) error {
	began := time.Now()
	fmt.Printf("Starting a control plane with the extension API server behind it (state and logs in %s):\n", dir)
	e, err := env.Start(ctx, env.Options{Dir: dir, Progress: os.Stdout})
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted; everything that was started is stopped")
		}
		return err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := writeKubeconfig(e, kubeconfig); err != nil {
		return errors.Join(err, e.Stop())
	}
	fmt.Printf("Ready after %.1fs. In another terminal:\n\n", time.Since(began).Seconds())
	fmt.Printf("  export KUBECONFIG=%s PATH=%s:$PATH\n", abs(kubeconfig), abs(filepath.Join("bin", env.Minor)))
	fmt.Print("  kubectl apply -f manifests/samples/widget.yaml\n")
	fmt.Print("  kubectl get widgets -A -w\n")
	fmt.Print("  kubectl create -f manifests/samples/identityreview.yaml -o yaml\n\n")
	if once {
		return e.Stop()
	}
	fmt.Println("Ctrl-C stops everything; `make run` finds the objects again, `make run-clean` forgets them.")
	<-e.Done()
	if ctx.Err() == nil {
		return errors.Join(e.Failure(), e.Stop())
	}
	fmt.Println("\nStopping ...")
	return e.Stop()
}

// writeKubeconfig copies the administrator's kubeconfig to where a user looks for it.
func writeKubeconfig(e *env.Environment, path string) error {
	admin, err := e.AdminKubeconfig()
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(admin)
	if err != nil {
		return err
	}
	return clientcmd.WriteToFile(*config, path)
}

func abs(path string) string {
	if a, err := filepath.Abs(path); err == nil {
		return a
	}
	return path
}
