// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
)

// encodedCost is the memory of a byte of an encoded event in bytes while a watch writes the event into
// its buffers, which grow meanwhile. copiedCost is the same for a byte of an object that is also
// converted. Its JSON can be six times as long.
const encodedCost, copiedCost = 8, 6 * encodedCost

// eventShare is the share of the memory that a watch has for the event that it sends. The library
// copies the encoded event to buffers of each watch, so one change of a large object would cost as many
// times its size as it has watches. Only the goroutine of the handler uses it.
type eventShare struct {
	memory   *Memory
	req      *http.Request
	giveBack func()        // nil if the watch has no share
	initial  *initialShare // nil if the watch has no memory for its initial events
}

type eventShareKey struct{}

// shareOf returns the share of a watch, or nil.
func shareOf(ctx context.Context) *eventShare {
	share, _ := ctx.Value(eventShareKey{}).(*eventShare)
	return share
}

// take waits for the memory of an event in bytes. An event that a slot of a watch covers needs none.
func (s *eventShare) take(cost int64) (err error) {
	if s == nil || cost <= placeCost {
		return nil
	}
	// All initial events are written. A request that has a share must not wait for another.
	if s.initial != nil {
		s.initial.release()
	}
	s.release()
	s.giveBack, err = s.memory.takeShare(s.req, min(cost, s.memory.perUser))
	return err
}

// release gives the share back when the event was written.
func (s *eventShare) release() {
	if s != nil && s.giveBack != nil {
		s.giveBack()
		s.giveBack = nil
	}
}

// watchedObject is the object of an event of one watch. It waits for the memory of the event.
type watchedObject struct {
	*sharedObject
	share *eventShare
}

// CacheEncode implements runtime.CacheableObject.
func (o *watchedObject) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error,
	w io.Writer) error {
	data, err := o.encodedBy(id, encode)()
	if err == nil {
		err = o.share.take(encodedCost * int64(len(data)))
	}
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}

// GetObject implements runtime.CacheableObject. The library calls it to convert the object to another
// representation. Without the memory for that, the watch has ended.
func (o *watchedObject) GetObject() runtime.Object {
	_ = o.share.take(copiedCost * o.size())
	return o.copy()
}

// DeepCopyObject implements runtime.Object.
func (o *watchedObject) DeepCopyObject() runtime.Object { return o.GetObject() }

// eventWriter reports the size of each event before it is sent, and gives its memory back afterwards.
// The library writes each event in one call.
type eventWriter struct {
	http.ResponseWriter
	written func(size int)
	share   *eventShare
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *eventWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *eventWriter) Write(p []byte) (int, error) {
	defer w.share.release()
	defer w.share.initial.written()
	w.written(len(p))
	return w.ResponseWriter.Write(p)
}

// Hijack implements http.Hijacker, for a watch over WebSocket.
func (w *eventWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	hijacker, ok := w.ResponseWriter.(http.Hijacker)
	if !ok {
		return nil, nil, errors.ErrUnsupported
	}
	conn, buffered, err := hijacker.Hijack()
	if err != nil {
		return nil, nil, err
	}
	events := &eventConn{conn, w}
	return events, bufio.NewReadWriter(buffered.Reader, bufio.NewWriter(events)), nil
}

// eventConn is the connection of a watch over WebSocket.
type eventConn struct {
	net.Conn
	writer *eventWriter
}

func (c *eventConn) Write(p []byte) (int, error) {
	defer c.writer.share.release()
	c.writer.written(len(p))
	return c.Conn.Write(p)
}
