// SPDX-License-Identifier: Apache-2.0

package objectsizes

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
)

// Of returns the size of an object in bytes, as protobuf, or as JSON if it has no such form. It returns
// 0 if the object cannot be encoded.
func Of(obj runtime.Object) int64 {
	if sized, ok := obj.(interface{ Size() int }); ok {
		return int64(sized.Size())
	}
	data, err := json.Marshal(obj)
	if err != nil {
		return 0
	}
	return int64(len(data))
}
