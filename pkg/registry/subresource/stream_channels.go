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

// streamProtocols are those of remotecommand (KEP-4006), which kubectl exec and client-go speak.
// Each message begins with the number of its channel. v5 also has the message StreamClose, which
// ends the channel that follows.
var streamProtocols = []string{remotecommand.StreamProtocolV5Name, remotecommand.StreamProtocolV4Name}

// maxStreamMessage bounds a message, in bytes. client-go sends its input as it reads it, in pieces
// of up to 32 KiB.
const maxStreamMessage = 1 + 32<<10

// selectProtocol returns the first offered protocol that a stream speaks, "" for none.
func selectProtocol(offered string) string {
	for protocol := range strings.SplitSeq(offered, ",") {
		if protocol = strings.TrimSpace(protocol); slices.Contains(streamProtocols, protocol) {
			return protocol
		}
	}
	return ""
}

// streamInput reads what the client sends on the channel of the input.
type streamInput struct {
	ws *websocket.Conn
	// heard is called for each message of the input, rest is what is left of the last.
	heard func()
	rest  []byte
	// err is how the input ended. It stays: what comes after a message that is too long is no input.
	err error
}

func newStreamInput(ws *websocket.Conn, heard func()) *streamInput {
	// Fragments count as messages: they are not put together.
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

// receive reads a message and returns what of it is input.
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
