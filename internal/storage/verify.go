// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// File is a snapshot file that has been verified to be complete.
type File struct {
	Path string `json:"file"`
	// Revision is the last revision in the snapshot.
	Revision int64 `json:"revision"`
	// Keys is the number of keys that exist at that revision.
	Keys int `json:"keys"`
	// Size is the size of the file in bytes. SHA256 is its hash, as sha256sum prints it.
	Size   int64  `json:"sizeBytes"`
	SHA256 string `json:"sha256"`
}

// Verify reads a snapshot, compares it with the hash that etcd appended, checks the pages of the
// database, and counts the keys.
func Verify(path string, progress io.Writer) (*File, error) {
	defer report(progress, func() string { return "verifying " + path })()
	f := &File{Path: path}
	var err error
	// The hash is checked first, because the database library maps the file into memory and trusts
	// its content.
	if f.Size, f.SHA256, err = checkHash(path); err != nil {
		return nil, err
	}
	status, err := snapshot.NewV3(zap.NewNop()).Status(path)
	if err != nil {
		return nil, fmt.Errorf("%s is not an etcd database: %w; save another snapshot", path, err)
	}
	f.Revision, f.Keys = status.Revision, status.TotalKey
	return f, nil
}

// checkHash compares the content with the SHA-256 that etcd appends to a snapshot when it is
// fetched. It returns the size and the SHA-256 of the whole file.
func checkHash(path string) (size int64, sum string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, "", fmt.Errorf("open snapshot: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, "", fmt.Errorf("read snapshot: %w", err)
	}
	// The database consists of pages whose size is a multiple of 512 bytes.
	size = info.Size()
	if !info.Mode().IsRegular() || size <= sha256.Size || size%512 != sha256.Size {
		return 0, "", fmt.Errorf(
			"%s is not a snapshot, or is truncated: a snapshot is a database followed by a hash of %d bytes, and "+
				"the file has %d bytes; use another file", path, sha256.Size, size)
	}
	h := sha256.New()
	if _, err := io.CopyN(h, file, size-sha256.Size); err != nil {
		return 0, "", fmt.Errorf("read snapshot: %w", err)
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(file, want); err != nil {
		return 0, "", fmt.Errorf("read snapshot: %w", err)
	}
	if got := h.Sum(nil); !bytes.Equal(got, want) {
		return 0, "", fmt.Errorf(
			"%s is damaged: the SHA-256 at its end is %x, and that of the database is %x; use another file",
			path, want, got)
	}
	h.Write(want)
	return size, hex.EncodeToString(h.Sum(nil)), nil
}
