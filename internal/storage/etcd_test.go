// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

const patience = time.Minute

// shortDir returns a directory whose name leaves room for the name of a socket (unix(7)). The
// directory of t.TempDir does not if the name of the test is long.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "storage-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// startEmbedded starts an etcd as a server embeds it. It runs until the end of the test or until
// stop is called.
func startEmbedded(t *testing.T, dataDir string) (_ Target, stop func()) {
	t.Helper()
	config := embed.NewConfig()
	config.Name = EmbeddedMember
	config.Dir = EtcdDir(dataDir)
	config.ListenClientUrls = []url.URL{{Scheme: "unix", Path: SocketPath(dataDir)}}
	config.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "localhost:2379"}}
	config.ListenPeerUrls = nil
	config.AdvertisePeerUrls = []url.URL{EmbeddedPeerURL}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	return Target{DataDir: dataDir, Prefix: "/registry/"}, startEtcd(t, config)
}

func startEtcd(t *testing.T, config *embed.Config) (stop func()) {
	t.Helper()
	config.LogLevel = "fatal"
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			etcd.Close()
		}
	}
	t.Cleanup(stop)
	return stop
}

// connect returns a client of the whole target when it responds.
func connect(t *testing.T, target Target) *clientv3.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	endpoints := target.Transport.ServerList
	if len(endpoints) == 0 {
		endpoints = []string{"unix://" + SocketPath(target.DataDir)}
	}
	client, err := clientv3.New(clientv3.Config{Context: t.Context(), Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	for {
		if _, err := client.Get(ctx, "health"); err == nil {
			return client
		} else if ctx.Err() != nil {
			t.Fatalf("etcd %v does not respond: %v", endpoints, err)
		}
	}
}

// fill writes n keys of 10 kB with the prefix of the target, and two other keys.
func fill(t *testing.T, target Target, n int) *clientv3.Client {
	t.Helper()
	client := connect(t, target)
	for i := range n {
		put(t, client, fmt.Sprintf("%s%d", target.Prefix, i), strings.Repeat(fmt.Sprint(i%10), 10_000))
	}
	put(t, client, "other/a", "a")
	put(t, client, "other/b", "b")
	return client
}

func put(t *testing.T, client *clientv3.Client, key, value string) (revision int64) {
	t.Helper()
	done, err := client.Put(t.Context(), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return done.Header.Revision
}

// cluster is an external etcd of three members.
type cluster struct {
	Target
	configs []*embed.Config
	stop    []func()
}

// newCluster configures three members with data directories in dir. Each process has its own
// addresses in 127.0.0.0/8, so that it need not search for free ports.
func newCluster(t *testing.T, dir string) *cluster {
	t.Helper()
	host := fmt.Sprintf("127.%d.%d.%d", 100+os.Getpid()>>16&0x3f, os.Getpid()>>8&0xff, os.Getpid()&0xff)
	c := &cluster{Target: Target{Prefix: "/registry/", Transport: storagebackend.TransportConfig{}}}
	var initial []string
	for i, name := range []string{"a", "b", "c"} {
		client := url.URL{Scheme: "http", Host: fmt.Sprintf("%s:%d", host, 2379+10*i)}
		peer := url.URL{Scheme: "http", Host: fmt.Sprintf("%s:%d", host, 2380+10*i)}
		config := embed.NewConfig()
		config.Name, config.Dir = name, filepath.Join(dir, name)
		config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		c.configs = append(c.configs, config)
		c.Transport.ServerList = append(c.Transport.ServerList, client.String())
		initial = append(initial, name+"="+peer.String())
	}
	for _, config := range c.configs {
		config.InitialCluster = strings.Join(initial, ",")
	}
	return c
}

func (c *cluster) start(t *testing.T) {
	t.Helper()
	c.stop = nil
	for _, config := range c.configs {
		c.stop = append(c.stop, startEtcd(t, config))
	}
	connect(t, c.Target)
}

// status waits until the status of the cluster satisfies the condition, and returns it.
func (c *cluster) status(t *testing.T, what string, ok func(*Status) bool) *Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		status, err := c.Status(ctx)
		if err == nil && ok(status) {
			return status
		}
		if ctx.Err() != nil {
			t.Fatalf("the cluster does not come to be as wanted, %s: got %+v, error %v", what, status, err)
		}
		<-time.After(50 * time.Millisecond)
	}
}
