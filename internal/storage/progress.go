// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"io"
	"time"
)

// progressInterval is the interval between progress lines. A shorter operation needs none.
const progressInterval = 2 * time.Second

// report writes a line of progress every two seconds until stop is called. stop waits until no
// line is being written.
func report(w io.Writer, text func() string) (stop func()) {
	if w == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(w, "%s (%s)\n", text(), time.Since(began).Round(time.Second))
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}
