// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"example.com/extension-apiserver/pkg/envtest"
)

// cgroup is a control group with the memory limit of the manifests, for the processes of a script.
type cgroup struct {
	dir, limit, peak, events string
}

// newCgroup creates the control group. It needs root.
func newCgroup() (*cgroup, error) {
	c := &cgroup{"/sys/fs/cgroup", "memory.max", "memory.peak", "memory.events"}
	if _, err := os.Stat(filepath.Join(c.dir, "cgroup.controllers")); err != nil { // version 1
		c = &cgroup{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"}
	}
	c.dir = filepath.Join(c.dir, fmt.Sprintf("extension-apiserver-limits-%d", os.Getpid()))
	if err := os.Mkdir(c.dir, 0o750); err != nil {
		return nil, fmt.Errorf("make a control group: %w", err)
	}
	if err := os.WriteFile(filepath.Join(c.dir, c.limit), fmt.Append(nil, memoryLimit<<10), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("limit the memory of a control group: %w", err), c.remove())
	}
	return c, nil
}

// command returns a script that runs a program in the control group.
func (c *cgroup) command(program string) (string, error) {
	dir, err := os.MkdirTemp("", "limits")
	if err != nil {
		return "", err
	}
	script := filepath.Join(dir, "server")
	text := fmt.Sprintf("#!/bin/sh\necho $$ >%s/cgroup.procs && exec %s \"$@\"\n", c.dir, program)
	return script, os.WriteFile(script, []byte(text), 0o700) //nolint:gosec // it is run
}

// killed returns how many processes of the group the kernel has killed because of the limit.
func (c *cgroup) killed() (int, error) {
	data, err := os.ReadFile(filepath.Join(c.dir, c.events))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if number, ok := strings.CutPrefix(line, "oom_kill "); ok {
			var killed int
			_, err := fmt.Sscan(number, &killed)
			return killed, err
		}
	}
	return 0, fmt.Errorf("no oom_kill in %s", c.events)
}

// remove waits until the processes exit, and removes the control group.
func (c *cgroup) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), envtest.WaitTimeout)
	defer cancel()
	for {
		err := os.Remove(c.dir)
		if err == nil || ctx.Err() != nil {
			return err
		}
		<-time.After(10 * time.Millisecond)
	}
}
