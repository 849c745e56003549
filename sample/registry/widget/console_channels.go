// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/net/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// consoleProtocols are those of remotecommand (KEP-4006), which kubectl exec and client-go speak.
// Each message begins with the number of its channel.
var consoleProtocols = []string{closingProtocol, "v4.channel.k8s.io"}

// closingProtocol also has the message closeChannel, which ends the channel that follows.
const closingProtocol = "v5.channel.k8s.io"

// The channels: the input, the output, what went wrong, the Status with which the server ends, and
// the size of a terminal, which a console has no use for.
const (
	stdin, stdout, stderr, status, resize = 0, 1, 2, 3, 4

	closeChannel = 255
)

// maxConsoleMessage bounds a message, in bytes. client-go sends its input as it reads it, in pieces
// of up to 32 KiB.
const maxConsoleMessage = 1 + 32<<10

// consoleInput reads what the client sends on the channel of the input.
type consoleInput struct {
	ws *websocket.Conn
	// heard is called for each message of the input, rest is what is left of the last.
	heard func()
	rest  []byte
}

func newConsoleInput(ws *websocket.Conn, heard func()) *consoleInput {
	// Fragments count as messages: they are not put together.
	ws.MaxPayloadBytes = maxConsoleMessage
	return &consoleInput{ws: ws, heard: heard}
}

func (in *consoleInput) Read(p []byte) (int, error) {
	for len(in.rest) == 0 {
		var message []byte
		err := websocket.Message.Receive(in.ws, &message)
		if errors.Is(err, websocket.ErrFrameTooLarge) {
			err = apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("a message is longer than %d bytes", maxConsoleMessage))
		}
		switch {
		case err != nil:
			return 0, err
		case len(message) == 0:
		case message[0] == closeChannel && in.ws.Config().Protocol[0] == closingProtocol:
			if len(message) != 2 || message[1] > resize {
				return 0, apierrors.NewBadRequest("a message closes a channel that does not exist")
			}
			if message[1] == stdin {
				return 0, io.EOF
			}
		case message[0] == stdin:
			in.heard()
			in.rest = message[1:]
		}
	}
	n := copy(p, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}

// consoleOutput sends each write as a message on a channel.
type consoleOutput struct {
	ws      *websocket.Conn
	channel byte
}

func (out consoleOutput) Write(data []byte) (int, error) {
	if err := websocket.Message.Send(out.ws, append([]byte{out.channel}, data...)); err != nil {
		return 0, err
	}
	return len(data), nil
}
