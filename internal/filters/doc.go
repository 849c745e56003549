// SPDX-License-Identifier: Apache-2.0

// Package filters contains the HTTP filters of a server, and what bounds the cost of a request beside them: a flow
// controller and an admission plugin. pkg/apiserver puts them in order. All filters can be used by concurrent requests.
// A filter that rejects a request responds with a Status, encoded by the serializer.
package filters
