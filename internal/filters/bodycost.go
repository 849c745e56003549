// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"example.com/extension-apiserver/internal/objectsizes"
	"example.com/extension-apiserver/internal/patch"
)

// Limits for request bodies, and their memory costs in bytes at the peak.
const (
	// valueCost is the cost of a value that is decoded into interfaces or structs. byteCost is the
	// cost of a byte of a body, which admission, patches and the storage copy.
	valueCost, byteCost = 300, 8
	// elementCost is the cost of a list element that is invalid in several ways.
	elementCost = 4 << 10
	// maxValues is the maximum number of values in a body. An object of 1.5 MiB, the limit of
	// etcd, has fewer.
	maxValues = 200_000
	// maxList is the maximum number of elements in a list, and of fields in an object. For 29,000
	// fields, the library takes 0.5 s to record who owns them. For several lists, the sum of the
	// squares of their lengths is limited. At the limit, the library takes 3 s. A field of an object
	// counts as a third of an element.
	maxList      = 10_000
	fieldsOfElem = 3
	// maxDepth is greater than the depth that the JSON decoders accept.
	maxDepth = 20_000
	// maxNested is the depth to which nested protobuf messages are examined.
	maxNested = 16
	// maxCopied is the maximum number of bytes in a patch, where each byte counts once for each
	// object and list around it. The libraries that apply merge patches and JSON patches copy the
	// rest of the document at each level. At the limit, they take one second.
	maxCopied = 32 << 20
	// maxFieldPath is the maximum total length, in bytes, of the names that lead to a field. Up to
	// 100 decoder errors contain them. fieldPathCost is the memory cost of each byte.
	maxFieldPath, fieldPathCost = 64 << 10, 200
)

// bodyEncoding is the encoding of a request body.
type bodyEncoding int

const (
	jsonEncoding bodyEncoding = iota
	protobufEncoding
	yamlEncoding
	cborEncoding
)

func encodingOf(req *http.Request) bodyEncoding {
	contentType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	switch contentType = strings.ToLower(contentType); {
	case strings.Contains(contentType, "protobuf"):
		return protobufEncoding
	case strings.Contains(contentType, "yaml"):
		return yamlEncoding
	case strings.Contains(contentType, "cbor"):
		return cborEncoding
	}
	return jsonEncoding
}

// cost returns the memory cost of a body in bytes. It returns an error with status 413 if the body
// has too many values or too long lists, and with status 400 if the body is not a protobuf message
// as declared.
func (e bodyEncoding) cost(body []byte) (int64, error) {
	c, err := e.content(body)
	if err != nil {
		return 0, err
	}
	return e.jsonLength(body)*byteCost + int64(c.values)*valueCost + int64(c.elements)*elementCost +
		int64(c.fieldPath)*fieldPathCost, nil
}

// patchCost returns the cost of a patch body. For JSON it also limits, and adds, the bytes that
// the libraries copy when they apply the patch.
func (e bodyEncoding) patchCost(body []byte) (int64, error) {
	cost, err := e.cost(body)
	if err != nil || e != jsonEncoding {
		return cost, err
	}
	var c bodyContent
	c.addJSON(body)
	if c.copied > maxCopied {
		return 0, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the patch is nested too deep for its size: the sum of the sizes of its objects and lists is %d bytes, and "+
				"the limit is %d", c.copied, maxCopied))
	}
	return cost + int64(c.copied), nil
}

// content returns a description of a body. It returns the same errors as cost.
func (e bodyEncoding) content(body []byte) (bodyContent, error) {
	var c bodyContent
	switch {
	case e == cborEncoding:
		c.values = len(body)
	case e == protobufEncoding:
		message := bytes.TrimPrefix(body, []byte("k8s\x00"))
		if !c.addMessage(message, maxNested) {
			return c, apierrors.NewBadRequest("the body is not a protobuf message")
		}
		c.owners = countOwners(message, rawField, metadataField, ownersField)
	case e == yamlEncoding && !json.Valid(body):
		for _, separator := range []string{",", ":", "-", "\n"} {
			c.values += bytes.Count(body, []byte(separator))
		}
		c.values /= 2 // an estimate; WithYAMLLimit counts the values
		c.elements = bytes.Count(body, []byte("- ")) + bytes.Count(body, []byte(","))
	default:
		c.addJSON(body)
	}
	return c, c.check()
}

// jsonLength returns the maximum length that the body can have as JSON in a response.
func (e bodyEncoding) jsonLength(body []byte) int64 {
	if e == protobufEncoding || e == cborEncoding {
		return objectsizes.JSONLength(body)
	}
	return objectsizes.EscapedLength(body)
}

// bodyContent describes the content of a body.
type bodyContent struct {
	values int
	// elements is the number of list elements, without the first element of each list.
	elements int
	// compared is the sum of the squares of the list lengths; an object counts as a list of a
	// third of its fields. The library compares each element with each other element when it
	// tracks field ownership, merges, and validates that elements are unique.
	compared int
	// fields is the number of fields of the longest object.
	fields int
	// owners is the length of the longest list of owner references.
	owners int
	// copied is the number of bytes, where each byte counts once for each object and list around
	// it.
	copied int
	// fieldPath is the maximum total length of the names that lead to a field.
	fieldPath int
}

func (c *bodyContent) addList(elements int) {
	c.elements += max(0, elements-1)
	c.compared += elements * elements
}

func (c *bodyContent) addFields(fields int) {
	c.fields = max(c.fields, fields)
	c.compared += fields / fieldsOfElem * (fields / fieldsOfElem)
}

// check returns an error with status 413 if the content exceeds a limit.
func (c *bodyContent) check() error {
	switch {
	case c.values > maxValues:
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body has %d values, and the limit is %d",
			c.values, maxValues))
	case c.fields > maxList:
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("an object of the body has %d fields, and the limit is %d",
			c.fields, maxList))
	case c.compared > maxList*maxList:
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the lists and objects of the body are too long; the limit for a single list is %d elements", maxList))
	case c.fieldPath > maxFieldPath:
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the longest field path of the body has %d bytes, and the limit is %d", c.fieldPath, maxFieldPath))
	case c.owners > patch.MaxOwners:
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body has %d ownerReferences, and the limit is %d",
			c.owners, patch.MaxOwners))
	}
	return nil
}

// addJSON adds a JSON document. It counts half a value for each separator: an element that is an
// object has two separators, and so has a field. The elements of a top-level list, such as the
// operations of a JSON patch, are not compared.
func (c *bodyContent) addJSON(body []byte) {
	separators, text := 0, []byte(nil) // text is the last string, in quotes
	type open struct {
		commas, begin int
		owners        bool
		fieldPath     int // of the names that lead to the object or list
		field         int // length of the current field's name
	}
	var opened []open
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			begin := i
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
			text = body[begin:min(i+1, len(body))]
		case '[', '{':
			if separators++; len(opened) == maxDepth {
				return // the decoder rejects it
			}
			next := open{begin: i, owners: body[i] == '[' && isOwners(text)}
			if len(opened) > 0 {
				last := opened[len(opened)-1]
				next.fieldPath = last.fieldPath + last.field
			}
			opened = append(opened, next)
		case ',':
			if separators++; len(opened) > 0 {
				opened[len(opened)-1].commas++
			}
			text = nil
		case ':':
			if separators++; len(opened) > 0 {
				last := &opened[len(opened)-1]
				last.field = len(text)
				c.fieldPath = max(c.fieldPath, last.fieldPath+last.field)
			}
		case ']', '}':
			if len(opened) == 0 {
				return // not JSON
			}
			last := opened[len(opened)-1]
			c.copied += i - last.begin
			switch opened = opened[:len(opened)-1]; {
			case body[i] == '}':
				c.addFields(last.commas + 1)
			case len(opened) > 0:
				c.addList(last.commas + 1)
			}
			if last.owners {
				c.owners = max(c.owners, last.commas+1)
			}
			text = nil
		}
	}
	c.values += separators / 2
}

// addOwners adds the owner references in a YAML mapping.
func (c *bodyContent) addOwners(mapping *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == ownersName {
			c.owners = max(c.owners, len(mapping.Content[i+1].Content))
		}
	}
}

// ownersName is the name of the field with the owner references.
const ownersName = "ownerReferences"

// isOwners reports whether a quoted JSON string is ownersName. The string may contain escapes.
func isOwners(text []byte) bool {
	if len(text) < len(ownersName) || len(text) > len(`\u0000`)*len(ownersName)+2 {
		return false
	}
	var decoded string
	return json.Unmarshal(text, &decoded) == nil && decoded == ownersName
}

// Protobuf field numbers: raw in runtime.Unknown, metadata in an object, and ownerReferences in
// its metadata.
const (
	rawField, metadataField, ownersField = 2, 1, 13
)

// countOwners returns the number of fields with the number first in a message. If rest is not
// empty, it counts the fields at the path rest in these fields instead.
func countOwners(message []byte, first int32, rest ...int32) (count int) {
	for len(message) > 0 {
		number, value, size := protobufField(message)
		switch {
		case size == 0:
			return count
		case number != first || value == nil:
		case len(rest) == 0:
			count++
		default:
			count += countOwners(value, rest[0], rest[1:]...)
		}
		message = message[size:]
	}
	return count
}

// addMessage adds the fields of a protobuf message and of the messages nested in it. It treats
// every value that parses as a message as one. Below the maximum depth it assumes fields of two
// bytes. It returns false if the input is not a message.
func (c *bodyContent) addMessage(message []byte, depth int) bool {
	if depth == 0 {
		c.values += len(message) / 2
		return true
	}
	elements := map[int32]int{}
	defer func() {
		for _, n := range elements {
			c.addList(n)
		}
	}()
	for len(message) > 0 && c.values <= maxValues {
		number, value, size := protobufField(message)
		if size == 0 {
			return false
		}
		if value != nil {
			// The decoder processes a malformed message up to the error, so its fields count,
			// unless the value is text.
			if before := *c; !c.addMessage(value, depth-1) && isText(value) {
				*c = before
			}
		}
		c.values++
		elements[number]++
		message = message[size:]
	}
	return true
}

// protobufField returns the number of the first field, its value if it is length-delimited, and
// the size of the whole field, which is 0 if the field cannot be read. It accepts what the
// generated decoders accept, which is more than the specification allows: they truncate field
// numbers, and accept any field number at the end of a group.
func protobufField(message []byte) (number int32, value []byte, size int) {
	groups := 0
	for size < len(message) {
		tag, n := protobufVarint(message[size:])
		size += n
		if n == 0 {
			return 0, nil, 0
		}
		if groups == 0 {
			number = int32(tag >> 3) //nolint:gosec // as the decoders do
		}
		switch tag & 7 {
		case 0:
			_, n = protobufVarint(message[size:])
			size += n
		case 1:
			n = 8
			size += n
		case 2:
			var length uint64
			if length, n = protobufVarint(message[size:]); n == 0 || length > uint64(len(message)-size-n) { //nolint:gosec // not negative
				return 0, nil, 0
			}
			value = message[size+n : size+n+int(length)] //nolint:gosec // it is in the message
			size += n + len(value)
		case 3:
			groups++
		case 4:
			groups--
		case 5:
			n = 4
			size += n
		default:
			return 0, nil, 0
		}
		switch {
		case n == 0 || size > len(message) || groups < 0:
			return 0, nil, 0
		case groups == 0 && tag&7 == 2:
			return number, value, size
		case groups == 0:
			return number, nil, size
		}
	}
	return 0, nil, 0
}

// protobufVarint returns a number and its size of at most 10 bytes. The size is 0 if the number is
// longer or incomplete.
func protobufVarint(data []byte) (v uint64, size int) {
	for size < min(len(data), 10) {
		c := data[size]
		v |= uint64(c&0x7f) << (7 * size)
		if size++; c < 0x80 {
			return v, size
		}
	}
	return 0, 0
}

// isText reports whether a value is UTF-8 without control characters other than white space.
func isText(value []byte) bool {
	return utf8.Valid(value) && !bytes.ContainsFunc(value,
		func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) })
}
