// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// TestS43Tunnel checks that an upgrade request leaves no tunnel unless the server sends status 101.
// kube-apiserver joins a client's connection with its own connection to the server for an upgrade.
// Without status 101 both must be closed: a client that keeps the connection acts as the front
// proxy towards the server, and can claim to be any user (CVE-2018-1002105).
func TestS43Tunnel(t *testing.T) {
	anybody(t)
	namespace := shared.NewNamespace(t)
	newWidget(t, shared, namespace, "w")
	mallory := unique("mallory")
	config, err := shared.Config(mallory)
	if err != nil {
		t.Fatal(err)
	}
	allRules := []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{"*"},
		Verbs: []string{"get", "list", "watch"}}}
	allow(t, shared, ofUser(mallory), "", allRules...)
	item := widgetsOf(namespace) + "/w"
	for name, tc := range map[string]struct {
		path   string
		status int
	}{
		// kube-apiserver turns a success without an upgrade into 503.
		"discovery":                        {current, 503},
		"a list":                           {widgetsOf(namespace), 503},
		"an object":                        {item, 503},
		"an object that does not exist":    {item + "x", 404},
		"a subresource":                    {item + "/status", 503},
		"no subresource":                   {item + "/exec", 404},
		"a console without the permission": {item + "/console", 403},
		"a path that kube-apiserver has":   {"/healthz", 200},
		"what kube-apiserver refuses":      {"/api/v1/namespaces/kube-system/secrets", 403},
	} {
		t.Run(name, func(t *testing.T) {
			for _, protocol := range []string{"websocket", "SPDY/3.1", "h2c", "anything"} {
				w := dial(t, config)
				w.send(t, http.MethodGet, tc.path, "", upgradeLines(protocol)...)
				got, err := w.receive()
				if err != nil || got.Status != tc.status {
					t.Errorf("%s: %s (%v), want %d", protocol, got, err, tc.status)
				}
				w.claim(t, protocol, mallory)
			}
		})
	}
	t.Run("positive control: a console with the permission", func(t *testing.T) {
		allow(t, shared, ofUser(mallory), "", rbacv1.PolicyRule{APIGroups: []string{group},
			Resources: []string{"widgets/console"}, Verbs: []string{"create"}})
		w := dial(t, config)
		w.send(t, http.MethodGet, item+"/console", "", upgradeLines("websocket")...)
		if got, err := w.receive(); err != nil || got.Status != http.StatusSwitchingProtocols {
			t.Fatalf("%s (%v), want 101", got, err)
		}
		// A request is not a WebSocket frame: the server ends the connection and reads no further
		// request.
		w.claim(t, "after the upgrade", mallory)
	})
	if got := specs(logs.checks(t, shared)["root"]); got != nil {
		t.Errorf("our server accepted a claim: %+v", got)
	}
}

func upgradeLines(protocol string) []string {
	return []string{
		"Connection: Upgrade", "Upgrade: " + protocol, "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: AQIDBAUGBwgJCgsMDQ4PEA==",
		"Sec-WebSocket-Protocol: v5.channel.k8s.io",
	}
}

// claim sends a second request on the same connection, as the front proxy would for another user.
// Either the connection is closed, or kube-apiserver reads it as another request of the client.
func (w *wire) claim(t *testing.T, what, name string) {
	t.Helper()
	body := string(reviewJSON)
	lines := []string{
		"X-Remote-User: root", "X-Remote-Group: system:masters", "Connection: close", "Content-Type: application/json",
		"Content-Length: " + strconv.Itoa(len(body)),
	}
	request := "POST " + current + reviews + " HTTP/1.1\r\nHost: " + w.host + "\r\n" + strings.Join(lines, "\r\n") +
		"\r\n\r\n" + body
	if _, err := io.WriteString(w, request); err != nil {
		return // closed, as required
	}
	got, err := w.receive()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: the connection is open, without a response", what)
	}
	if err != nil {
		return
	}
	if got.Status != http.StatusCreated || seen(t, got.Body).UserInfo.Username != name {
		t.Errorf("%s: the second request got %s; want a closed connection, or one of %s itself",
			what, got, name)
	}
}
