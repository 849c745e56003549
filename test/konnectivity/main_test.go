// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

// patience is how long a condition may take to come true on a busy machine. kube-apiserver looks at an APIService each
// 30 s, and an agent that found no server waits up to 30 s for its next attempt. Tests wait, and end as soon as it is
// true.
const patience = 3 * time.Minute

// inside tells the test binary that it runs in namespaces of its own.
const inside = "KONNECTIVITY_TEST_INSIDE"

// noNamespaces is why nothing can be tested; empty when it can.
var noNamespaces string

// TestMain gives a user who is not root the rights of root over networks of its own.
func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		if err := loopback(); err != nil {
			fmt.Fprintf(os.Stderr, "set up the loopback of the network of the tests: %v\n", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	if os.Getuid() == 0 {
		os.Exit(m.Run())
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// There is nft, which is not in the PATH of Debian's users.
	cmd.Env = append(os.Environ(), inside+"=1", "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		noNamespaces = fmt.Sprintf("network namespaces need root, or user namespaces, which this system refuses: %v",
			err)
		os.Exit(m.Run())
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintf(os.Stderr, "run the tests in namespaces of their own: %v\n", err)
		os.Exit(1)
	}
}

// loopback is down in a new network.
func loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// start starts an environment, where that is possible.
func start(t testing.TB, options envtest.Options) *envtest.Environment {
	t.Helper()
	if noNamespaces != "" {
		t.Skip(noNamespaces)
	}
	return envtest.New(t, options)
}

// only is the kube-apiserver of an environment with one.
func only(e *envtest.Environment) *envtest.KubeAPIServer { return e.KubeAPIServers[0] }

// setTunnel changes how the kube-apiserver reaches our server, and fails the test if it cannot.
func setTunnel(t *testing.T, e *envtest.Environment, tunnel envtest.Tunnel) {
	t.Helper()
	began := time.Now()
	if err := e.SetTunnel(t.Context(), only(e), tunnel); err != nil {
		t.Fatal(err)
	}
	t.Logf("another tunnel after %.1f s", time.Since(began).Seconds())
}

// answers waits until our API answers through the kube-apiserver of the config.
func answers(t testing.TB, e *envtest.Environment, config *rest.Config) {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Timeout = time.Second // so that a request which hangs is soon another one
	e.Eventually(t, "our API to answer", patience, func(ctx context.Context) error {
		return get(ctx, config, gadgets+"?limit=1")
	})
}

// get gets a path, once.
func get(ctx context.Context, config *rest.Config, path string) error {
	_, err := read(ctx, config, path)
	return err
}

// read returns the answer to one request. Its connection is closed after it, so that what the servers hold open is
// theirs.
func read(ctx context.Context, config *rest.Config, path string) ([]byte, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	through, err := rest.HTTPWrappersForConfig(config, &http.Transport{
		TLSClientConfig: tlsConfig, DialContext: config.Dial, DisableKeepAlives: true,
		DisableCompression: config.DisableCompression,
	})
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: through, Timeout: config.Timeout})
	if err != nil {
		return nil, err
	}
	body, err := client.RESTClient().Get().MaxRetries(0).RequestURI(path).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %.400s", err, body)
	}
	return body, nil
}
