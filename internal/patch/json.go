// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
)

// MaxOwners is the maximum number of owner references of an object. The library compares each with
// each other, several times and before admission.
const MaxOwners = 500

// maxMoved is the maximum number of elements that the operations of a JSON patch may move in one
// list. This takes 0.3 s.
const maxMoved = 10_000_000

// inserts contains the operations that make a list longer.
var inserts = sets.New("add", "copy", "move")

// JSON returns the cost of a JSON patch. It returns an error with status 413 if the operations may
// move too many elements of their own values and of the values that they insert, or may create too
// many owner references. Each operation that inserts or removes a list element moves the others. A
// body that is not a JSON patch has no cost; the library rejects it.
func JSON(body []byte) (Cost, error) {
	var operations []map[string]json.RawMessage
	if err := json.Unmarshal(body, &operations); err != nil {
		return Cost{}, nil
	}
	cost, most, inserted, owners := Cost{Operations: len(operations)}, 0, 0, false
	for _, operation := range operations {
		for _, value := range operation {
			most = max(most, commas(value))
		}
		var op, path string
		if json.Unmarshal(operation["op"], &op) != nil || json.Unmarshal(operation["path"], &path) != nil {
			continue // which the library rejects
		}
		owners = owners || strings.Contains(path, "/ownerReferences")
		if _, err := strconv.Atoi(path[strings.LastIndex(path, "/")+1:]); err == nil && inserts.Has(op) {
			inserted++
		}
	}
	if made := max(most, len(operations)); owners && made > MaxOwners {
		return cost, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("a JSON patch of ownerReferences may have %d operations and values, not %d", MaxOwners, made))
	}
	if moved := most*len(operations) + inserted*inserted/2; moved > maxMoved {
		return cost, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("the %d operations of a JSON patch, %d of them insertions, with up to %d "+
				"elements and fields in a value, may move %d elements, more than %d", len(operations), inserted, most+1,
				moved, maxMoved))
	}
	return cost, nil
}

// commas returns the number of commas between elements and fields in JSON.
func commas(value []byte) int {
	n, text := 0, false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '"':
			text = !text
		case text && c == '\\':
			i++
		case !text && c == ',':
			n++
		}
	}
	return n
}
