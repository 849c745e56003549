// SPDX-License-Identifier: Apache-2.0

// Command local-up starts a control plane with an extension API server, prints how to use it, and
// stops it on interrupt. `make run` of the kit and of projects runs it, and so does
// scripts/measure.sh.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/pkg/envtest"
)

type flags struct {
	dir, server, objects string
	programs             string
	externalEtcd         bool
	copyOf               string
	copies               int
	measure              time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := cli.Run(ctx, newCommand())
	stop()
	os.Exit(code)
}

func newCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "local-up",
		Short: "Run a control plane with an extension API server",
		Long: `Start etcd, kube-apiserver and an extension API server behind it, print the commands that use the
API, and stop all processes on Ctrl-C.

The first run builds the programs of the control plane, which takes minutes.`,
		Example: `  # Serve the sample
  local-up

  # Serve the API of a project
  local-up --server ./cmd/backup-apiserver --objects objects

  # Print the memory usage of the server with 1000 objects
  local-up --copy-of sample/objects/widget.yaml --copies 1000 --measure 60s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f) },
	}
	set := cmd.Flags()
	set.StringVar(&f.dir, "dir", ".run", "Directory of the state and the logs. A later run finds the stored objects.")
	set.StringVar(&f.server, "server", "./cmd/extension-apiserver",
		"Main package of the server, or the absolute path of its executable.")
	set.StringVar(&f.objects, "objects", "sample/objects",
		"Directory with objects of the API, for the printed commands.")
	set.StringVar(&f.programs, "programs", "bin/"+envtest.Minor(),
		"Path of a link to create to the directory with kubectl and the other programs. Empty creates none.")
	set.BoolVar(&f.externalEtcd, "external-etcd", false,
		"Start an external etcd with TLS for the server instead of the embedded one.")
	set.StringVar(&f.copyOf, "copy-of", "",
		"File with an object of which to create copies in the namespace default.")
	set.IntVar(&f.copies, "copies", 1, "Number of copies, with --copy-of.")
	set.DurationVar(&f.measure, "measure", -1,
		"Wait for this duration without requests, print the memory usage of the server, and stop.")
	cli.AddVersion(cmd)
	return cmd
}

func run(ctx context.Context, f flags) (err error) {
	began := time.Now()
	fmt.Printf("Starting a control plane and the extension API server (state and logs are in %s):\n", f.dir)
	e, err := envtest.Start(ctx, envtest.Options{Dir: f.dir, Server: f.server, ExternalEtcd: f.externalEtcd,
		Progress: os.Stdout})
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted; all processes are stopped")
		}
		return err
	}
	defer func() { err = errors.Join(err, e.Stop()) }()
	kubeconfig := filepath.Join(f.dir, "kubeconfig")
	if err := writeKubeconfig(e, kubeconfig); err != nil {
		return err
	}
	if err := link(filepath.Dir(e.Binary("kubectl")), f.programs); err != nil {
		return err
	}
	fmt.Printf("Ready after %.1fs.\n", time.Since(began).Seconds())
	if err := createCopies(ctx, e, f.copyOf, f.copies); err != nil {
		return err
	}
	if f.measure >= 0 {
		return measure(ctx, e, f.measure)
	}
	fmt.Printf(`
In another terminal:

  export KUBECONFIG=%s PATH=%s:$PATH
%s
Press Ctrl-C to stop. The next "make run" keeps the objects, and "make run-clean" deletes them.
`, abs(kubeconfig), filepath.Dir(e.Binary("kubectl")), examples(f.objects, func(kind schema.GroupVersionKind) bool { return readOnly(e, kind) }))
	<-e.Done()
	if ctx.Err() == nil {
		return e.Failure()
	}
	fmt.Println("\nStopping ...")
	return nil
}

// link creates a symbolic link to a directory, replacing an existing link. It does nothing if
// path is empty.
func link(dir, path string) error {
	if current, err := os.Readlink(path); path == "" || err == nil && current == dir {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // in the checkout
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("link %s to %s: %w", path, dir, err)
	}
	return os.Symlink(dir, path)
}

// examples returns a command for each object of a folder: it creates the object, or reads it if its
// kind is read-only. Before them, a command applies the objects to which they refer, which are in
// the subfolder prepare.
func examples(dir string, readOnly func(schema.GroupVersionKind) bool) string {
	var commands strings.Builder
	prepare := filepath.Join(dir, "prepare")
	if files, _ := filepath.Glob(filepath.Join(prepare, "*.yaml")); len(files) > 0 {
		fmt.Fprintf(&commands, "  kubectl apply -f %s\n", prepare)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.yaml"))
	for _, file := range files {
		verb := "create"
		if object, err := readObject(file); err == nil && readOnly(object.GroupVersionKind()) {
			verb = "get"
		}
		fmt.Fprintf(&commands, "  kubectl %s -f %s -o yaml\n", verb, file)
	}
	return commands.String()
}

// readOnly returns whether the discovery document shows that objects of a kind cannot be created.
func readOnly(e *envtest.Environment, kind schema.GroupVersionKind) bool {
	config, err := e.AdminConfig()
	if err != nil {
		return false
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return false
	}
	list, err := client.ServerResourcesForGroupVersion(kind.GroupVersion().String())
	if err != nil {
		return false
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Kind == kind.Kind && !strings.Contains(r.Name, "/") && !slices.Contains(r.Verbs, "create")
	})
}

func readObject(file string) (*unstructured.Unstructured, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &object.Object); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return object, nil
}

// measure prints the server's resident memory (VmRSS) after it was idle for the given time.
func measure(ctx context.Context, e *envtest.Environment, idle time.Duration) error {
	select {
	case <-e.Done():
		return context.Cause(ctx)
	case <-time.After(idle):
	}
	kib, err := e.Servers[0].VmRSS()
	if err != nil {
		return err
	}
	fmt.Printf("VmRSS after %s idle: %d MiB\n", idle, kib/1024)
	return nil
}

// createCopies creates n copies of the object in the file, 16 at a time.
func createCopies(ctx context.Context, e *envtest.Environment, file string, n int) error {
	if file == "" {
		return nil
	}
	object, err := readObject(file)
	if err != nil {
		return err
	}
	client, err := clientFor(e, object.GroupVersionKind())
	if err != nil {
		return err
	}
	creators, ctx := errgroup.WithContext(ctx)
	creators.SetLimit(16)
	for i := range n {
		creators.Go(func() error {
			one := object.DeepCopy()
			one.SetNamespace(metav1.NamespaceDefault)
			one.SetName(fmt.Sprintf("%s-%d", object.GetName(), i))
			_, err := client.Create(ctx, one, metav1.CreateOptions{})
			return err
		})
	}
	return creators.Wait()
}

// clientFor returns a client for objects of the kind in the namespace default.
func clientFor(e *envtest.Environment, kind schema.GroupVersionKind) (dynamic.ResourceInterface, error) {
	config, err := e.AdminConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	groups, err := restmapper.GetAPIGroupResources(discoveryClient)
	if err != nil {
		return nil, err
	}
	mapping, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	return client.Resource(mapping.Resource).Namespace(metav1.NamespaceDefault), nil
}

// writeKubeconfig copies the administrator's kubeconfig to path.
func writeKubeconfig(e *envtest.Environment, path string) error {
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
