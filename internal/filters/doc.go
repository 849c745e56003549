// SPDX-License-Identifier: Apache-2.0

// Package filters contains the HTTP filters of a server. It also contains a flow controller and an
// admission plugin that limit the cost of requests. pkg/apiserver orders the filters. All filters
// are safe for concurrent requests. A filter that rejects a request responds with a Status,
// encoded by the serializer, except for the 431 of WithHeaderLimit. Comments call k8s.io/apiserver
// the library.
package filters
