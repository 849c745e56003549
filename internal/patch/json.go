// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// MaxOwners is the number of owners that an object may have. The library compares each with each other, several times and before admission.
const MaxOwners = 500

// maxMoved is the number of elements that the operations of a JSON patch may move in one list: 0.3 s.
const maxMoved = 10_000_000

// JSON returns what a JSON patch costs, or an error with the status 413 if its operations may move too many elements of its own values. Each
// that inserts or removes an element of a list moves the others. A body that is no JSON patch is left to the library.
func JSON(body []byte) (Cost, error) {
	var operations []map[string]json.RawMessage
	if err := json.Unmarshal(body, &operations); err != nil {
		return Cost{}, nil
	}
	cost, most, owners := Cost{Operations: len(operations)}, 0, false
	for _, operation := range operations {
		for _, value := range operation {
			most = max(most, commas(value))
		}
		var path string
		owners = owners || json.Unmarshal(operation["path"], &path) == nil && strings.Contains(path, "/ownerReferences")
	}
	if made := max(most, len(operations)); owners && made > MaxOwners {
		return cost, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("a JSON patch of ownerReferences may have %d operations and values, not %d",
			MaxOwners, made))
	}
	if most*len(operations) > maxMoved {
		return cost, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the number of operations of a JSON patch, %d, multiplied by the number of elements "+
			"and fields in a value, %d, may be at most %d", len(operations), most+1, maxMoved))
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
