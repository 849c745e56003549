// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// maxValues is the number of values that a body may have. An object of 1.5 MiB, which is what etcd takes, has fewer.
	maxValues = 250_000
	// maxList is the number of elements that a list may have. Of several lists, the sum of the squares counts: the library takes 3 s.
	maxList = 10_000
	// maxDepth is more than what the decoders of JSON accept.
	maxDepth = 20_000
	// maxNested is how deep messages in protobuf are looked into.
	maxNested = 16
)

// bodyEncoding is what the content of a body is encoded in.
type bodyEncoding int

const (
	jsonEncoding bodyEncoding = iota
	protobufEncoding
	yamlEncoding
	cborEncoding
)

func encodingOf(req *http.Request) bodyEncoding {
	contentType := strings.ToLower(req.Header.Get("Content-Type"))
	for encoding, word := range map[bodyEncoding]string{protobufEncoding: "protobuf", yamlEncoding: "yaml", cborEncoding: "cbor"} {
		if strings.Contains(contentType, word) {
			return encoding
		}
	}
	return jsonEncoding
}

// worst returns what a body of a size costs at the most.
func (e bodyEncoding) worst(size int64) int64 {
	switch e {
	case yamlEncoding:
		return size * yamlByteCost
	case cborEncoding:
		return size * cborByteCost
	}
	return size * (byteCost + valueCost/2) // "1," and an empty message in protobuf
}

// cost returns what a body costs, or an error with the status 413 if it has too many values, or lists that are too long.
func (e bodyEncoding) cost(body []byte) (int64, error) {
	var c bodyContent
	switch {
	case e == protobufEncoding:
		c.addMessage(bytes.TrimPrefix(body, []byte("k8s\x00")), maxNested)
	case e == jsonEncoding, e == yamlEncoding && json.Valid(body):
		c.addJSON(body)
	}
	if err := c.check(); err != nil {
		return 0, err
	}
	if e == yamlEncoding || e == cborEncoding {
		return e.worst(int64(len(body))), nil
	}
	return int64(len(body))*byteCost + int64(c.values)*valueCost, nil
}

// bodyContent is what a body has in it.
type bodyContent struct {
	values int
	// compared is the sum of the squares of the lengths of its lists. The library compares each element with each other when it tracks who
	// owns a field, merges, and validates that elements are unique.
	compared int
}

func (c *bodyContent) addList(elements int) { c.compared += elements * elements }

// check returns an error with the status 413 if there is too much.
func (c *bodyContent) check() error {
	switch {
	case c.values > maxValues:
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body has %d values, and may have %d", c.values, maxValues))
	case c.compared > maxList*maxList:
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the lists of the body are too long, one alone may have %d elements", maxList))
	}
	return nil
}

// addJSON adds a document, half a value for each separator: an element that is an object has two, and so has a field. The elements of a
// list at the top, such as the operations of a JSON patch, are not compared.
func (c *bodyContent) addJSON(body []byte) {
	separators := 0
	var commas []int // in each list and object that is open
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			separators++
			commas = append(commas, 0)
		case ',':
			separators++
			if len(commas) > 0 {
				commas[len(commas)-1]++
			}
		case ':':
			separators++
		case ']', '}':
			if len(commas) == 0 || len(commas) > maxDepth {
				return // the decoder rejects it
			}
			if last := len(commas) - 1; body[i] == ']' && last > 0 {
				c.addList(commas[last] + 1)
			}
			commas = commas[:len(commas)-1]
		}
	}
	c.values += separators / 2
}

// addMessage adds the fields of a message in protobuf, and of those in it: what can be read as a message is taken for one, and what is too
// deep for fields of two bytes. It returns whether it was a message.
func (c *bodyContent) addMessage(message []byte, depth int) bool {
	if depth == 0 {
		c.values += len(message) / 2
		return true
	}
	elements := map[protowire.Number]int{}
	for len(message) > 0 && c.values <= maxValues {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return false
		}
		size := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if size < 0 {
			return false
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message[tag:])
			if before := *c; !c.addMessage(value, depth-1) {
				*c = before
			}
		}
		c.values++
		elements[number]++
		message = message[tag+size:]
	}
	for _, n := range elements {
		c.addList(n)
	}
	return true
}
