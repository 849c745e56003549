// SPDX-License-Identifier: Apache-2.0

// Package embeddedetcd runs etcd in the process of a server, for an API whose servers need no
// external etcd cluster. It links the server of etcd. internal/storage operates it.
package embeddedetcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"k8s.io/klog/v2"

	"example.com/extension-apiserver/internal/storage"
)

const (
	// maxSocketPath is the size of sun_path without its terminating NUL (unix(7)).
	maxSocketPath = 107
	// startTimeout limits the start. Opening the database takes 0.3 s, but longer for a large one
	// after a crash.
	startTimeout = 60 * time.Second
)

// Server implements apiserver.EmbeddedEtcd. Clients reach the etcd through a Unix socket in a
// directory that only its owner can enter.
type Server struct{}

// ValidateDataDir implements apiserver.EmbeddedEtcd.
func (Server) ValidateDataDir(dataDir string) []error {
	abs, err := filepath.Abs(dataDir)
	if dataDir == "" || err != nil {
		return []error{errors.New(
			"--data-dir is required for the embedded etcd, or --etcd-servers for an external one")}
	}
	if path := storage.SocketPath(abs); len(path) > maxSocketPath {
		return []error{fmt.Errorf(
			"--data-dir %s: the path of its socket %s has %d bytes, and must have at most %d; choose a shorter directory",
			dataDir, path, len(path), maxSocketPath)}
	}
	return nil
}

// Start implements apiserver.EmbeddedEtcd.
func (Server) Start(ctx context.Context,
	dataDir string) (endpoint string, failed <-chan error, closeEtcd func(), err error) {
	dataDir, err = filepath.Abs(dataDir)
	if err != nil {
		return "", nil, nil, fmt.Errorf("resolve --data-dir: %w", err)
	}
	// etcd creates its socket with mode 0755, so the mode of the directory keeps other users out.
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return "", nil, nil, fmt.Errorf("create --data-dir: %w; choose a directory that this user can write", err)
	}
	if err := os.Chmod(dataDir, 0o700); err != nil {
		return "", nil, nil, fmt.Errorf(
			"set the mode of --data-dir: %w; it must belong to the user that runs the server", err)
	}
	lock, err := fileutil.TryLockFile(storage.LockPath(dataDir), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return "", nil, nil, fmt.Errorf(
			"--data-dir %s is in use by another server; stop it, or choose another directory", dataDir)
	} else if err != nil {
		return "", nil, nil, fmt.Errorf("lock --data-dir: %w", err)
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()

	config, logs, err := newConfig(dataDir)
	if err != nil {
		return "", nil, nil, err
	}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return "", nil, nil, fmt.Errorf("start embedded etcd in %s: %w", dataDir, err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return "unix://" + config.ListenClientUrls[0].Path, etcd.Err(), func() {
			// When its own listeners close, etcd would log errors with stack traces.
			logs.SetLevel(zap.FatalLevel)
			etcd.Close()
			if err := lock.Close(); err != nil {
				klog.ErrorS(err, "Failed to unlock the data directory")
			}
		}, nil
	case err = <-etcd.Err():
	case <-time.After(startTimeout):
		err = fmt.Errorf("not ready after %s", startTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}
	etcd.Close()
	return "", nil, nil, fmt.Errorf("start embedded etcd in %s: %w", dataDir, err)
}

func newConfig(dataDir string) (*embed.Config, zap.AtomicLevel, error) {
	logs := zap.NewProductionConfig()
	logs.Level = zap.NewAtomicLevelAt(zap.ErrorLevel)
	logger, err := logs.Build()
	if err != nil {
		return nil, logs.Level, fmt.Errorf("create logger of embedded etcd: %w", err)
	}

	cfg := embed.NewConfig()
	cfg.Name = storage.EmbeddedMember
	cfg.Dir = storage.EtcdDir(dataDir)
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: storage.SocketPath(dataDir)}}
	// No client connects to the advertised addresses of a single member. etcd only checks their
	// syntax.
	cfg.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "localhost:2379"}}
	// No peers: by default etcd would listen on port 2380 for other members.
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{storage.EmbeddedPeerURL}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	return cfg, logs.Level, nil
}
