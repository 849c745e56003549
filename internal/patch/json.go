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

// MaxOwners is the number of owners that an object may have. The library compares each with each other, several times
// and before admission.
const MaxOwners = 500

// maxMoved is the number of elements that the operations of a JSON patch may move in one list: 0.3 s.
const maxMoved = 10_000_000

// inserts are the operations that make a list longer.
var inserts = sets.New("add", "copy", "move")

// JSON returns what a JSON patch costs, or an error with the status 413 if its operations may move too many elements of
// its own values, and of what they insert. Each that inserts or removes an element of a list moves the others. A body
// that is not a JSON patch has no cost; the library rejects it.
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

// commas counts those between elements and fields in JSON.
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
