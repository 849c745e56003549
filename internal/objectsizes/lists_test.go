// SPDX-License-Identifier: Apache-2.0

package objectsizes

import "testing"

// TestLists checks the expected size of a list after earlier lists.
func TestLists(t *testing.T) {
	const most = 1_000_000
	whole := List{Objects: 100, Size: 10_000, Whole: true}
	page := List{Limit: 10, Objects: 10, Size: 1_000}
	for name, c := range map[string]struct {
		earlier   []List
		namespace string
		limit     int64
		want      int64
	}{
		"nothing known":               {nil, "", 0, most},
		"nothing known, limit":        {nil, "", 1, most},
		"whole list":                  {[]List{whole}, "", 0, 10_000},
		"whole list, limit":           {[]List{whole}, "", 5, 500},
		"whole list, larger limit":    {[]List{whole}, "", 500, 10_000},
		"page":                        {[]List{page}, "", 0, most},
		"page, limit":                 {[]List{page}, "", 20, 2_000},
		"page, large limit":           {[]List{page}, "", 20_000, most},
		"empty list":                  {[]List{{Whole: true}}, "", 0, 0},
		"after a larger list":         {[]List{{Objects: 1, Size: 10, Whole: true}, whole}, "", 0, 10_000},
		"after a smaller list":        {[]List{whole, {Objects: 20, Size: 2_000, Whole: true}}, "", 0, 9_000},
		"namespace, others known":     {[]List{whole}, "ns", 0, most},
		"namespace":                   {[]List{whole, {Namespace: "a", Objects: 2, Size: 200, Whole: true}}, "b", 0, 200},
		"source that ignores limits":  {[]List{{Limit: 10, Objects: 100, Size: 10_000, Whole: true}}, "", 10, 10_000},
		"source with different sizes": {[]List{{Limit: 1, Objects: 1, Size: 900}, page}, "", 10, 8_000},
	} {
		lists := NewLists(most)
		got := int64(0)
		for _, list := range c.earlier {
			lists.Record(WithListSize(t.Context(), func(size int64) { got = size }), list)
			if got != list.Size {
				t.Errorf("%s: the function of the request got %d, want %d", name, got, list.Size)
			}
		}
		if got := lists.Expected(c.namespace, c.limit); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}
