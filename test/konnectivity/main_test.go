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

// patience is how long a condition may take on a busy machine. kube-apiserver checks an APIService
// every 30 s, and an agent that found no server waits up to 30 s for its next attempt. Tests
// continue as soon as the condition is true.
const patience = 3 * time.Minute

// inside is the environment variable of a test binary that runs in its own namespaces.
const inside = "KONNECTIVITY_TEST_INSIDE"

// noNamespaces is the reason why the tests are skipped, or empty.
var noNamespaces string

// TestMain gives a user who is not root the permissions of root over its own networks.
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
	// For nft, which is not in the PATH of Debian's users.
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

// loopback sets up the loopback device, which is down in a new network.
func loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// start starts an environment, or skips the test without namespaces.
func start(t testing.TB, options envtest.Options) *envtest.Environment {
	t.Helper()
	if noNamespaces != "" {
		t.Skip(noNamespaces)
	}
	return envtest.New(t, options)
}

// only returns the kube-apiserver of an environment with one.
func only(e *envtest.Environment) *envtest.KubeAPIServer { return e.KubeAPIServers[0] }

// setTunnel changes how the kube-apiserver reaches the server, and fails the test on an error.
func setTunnel(t *testing.T, e *envtest.Environment, tunnel envtest.Tunnel) {
	t.Helper()
	began := time.Now()
	if err := e.SetTunnel(t.Context(), only(e), tunnel); err != nil {
		t.Fatal(err)
	}
	t.Logf("another tunnel after %.1f s", time.Since(began).Seconds())
}

// responds waits until the API responds through the kube-apiserver of the config.
func responds(t testing.TB, e *envtest.Environment, config *rest.Config) {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Timeout = time.Second // so that a hanging request is soon retried
	e.Eventually(t, "our API to respond", patience, func(ctx context.Context) error {
		return get(ctx, config, gadgets+"?limit=1")
	})
}

// get requests a path once.
func get(ctx context.Context, config *rest.Config, path string) error {
	_, err := read(ctx, config, path)
	return err
}

// read returns the body of one response. It closes the connection afterwards, so that the servers'
// open connections are their own.
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
