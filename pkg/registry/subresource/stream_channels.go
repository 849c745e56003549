// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/net/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/remotecommand"
)

// streamProtocols are the protocols of remotecommand (KEP-4006) that kubectl exec and client-go
// support. Each message begins with the number of its channel. v5 adds the message StreamClose,
// which closes the channel whose number follows.
var streamProtocols = []string{remotecommand.StreamProtocolV5Name, remotecommand.StreamProtocolV4Name}

// maxStreamMessage is the maximum size of a message in bytes. client-go sends its input in
// messages of up to 32 KiB.
const maxStreamMessage = 1 + 32<<10

// selectProtocol returns the first offered protocol that is supported, or "" if there is none.
func selectProtocol(offered string) string {
	for protocol := range strings.SplitSeq(offered, ",") {
		if protocol = strings.TrimSpace(protocol); slices.Contains(streamProtocols, protocol) {
			return protocol
		}
	}
	return ""
}

// streamInput reads the data that the client sends on the input channel.
type streamInput struct {
	ws *websocket.Conn
	// heard is called for each input message. rest is the unread part of the last message.
	heard func()
	rest  []byte
	// err is the error that ended the input. It is permanent, because data after a message that
	// is too long is not valid input.
	err error
}

func newStreamInput(ws *websocket.Conn, heard func()) *streamInput {
	// Fragments are not assembled, so each counts as a message.
	ws.MaxPayloadBytes = maxStreamMessage
	return &streamInput{ws: ws, heard: heard}
}

func (in *streamInput) Read(p []byte) (int, error) {
	for len(in.rest) == 0 && in.err == nil {
		in.rest, in.err = in.receive()
	}
	if len(in.rest) == 0 {
		return 0, in.err
	}
	n := copy(p, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}

// receive reads a message and returns its input data, if any.
func (in *streamInput) receive() ([]byte, error) {
	var message []byte
	err := websocket.Message.Receive(in.ws, &message)
	if errors.Is(err, websocket.ErrFrameTooLarge) {
		err = apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("a message is longer than %d bytes",
			maxStreamMessage))
	}
	switch {
	case err != nil:
		return nil, err
	case len(message) == 0:
	case message[0] == remotecommand.StreamClose && in.ws.Config().Protocol[0] == remotecommand.StreamProtocolV5Name:
		if len(message) != 2 || message[1] > remotecommand.StreamResize {
			return nil, apierrors.NewBadRequest("a message closes a channel that does not exist")
		}
		if message[1] == remotecommand.StreamStdIn {
			return nil, io.EOF
		}
	case message[0] == remotecommand.StreamStdIn:
		in.heard()
		return message[1:], nil
	}
	return nil, nil
}

// streamOutput sends each write as a message on a channel.
type streamOutput struct {
	ws      *websocket.Conn
	channel byte
}

func (out streamOutput) Write(data []byte) (int, error) {
	if err := websocket.Message.Send(out.ws, append([]byte{out.channel}, data...)); err != nil {
		return 0, err
	}
	return len(data), nil
}
