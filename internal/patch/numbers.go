// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"cmp"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// maxExact is the smallest integer that a float64 may hold in place of a different number.
const maxExact = 1 << 53

const inexact = "would be rounded; send it in an update, a merge patch or a JSON patch"

// scalar describes the error of v as a value of a type that is not a struct, map or slice. It
// returns "" if v is valid.
func (c *checker) scalar(v any, t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		if _, ok := v.(string); !ok {
			return "must be a string"
		}
		return ""
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			return "must be a boolean"
		}
		return ""
	}
	if !isInteger(t) && !isFloat(t) {
		return "cannot be patched"
	}
	if detail := c.rounding(v); detail != "" && isInteger(t) {
		return detail
	}
	switch n := v.(type) {
	case int64:
		return integer(n, t)
	case float64:
		return float(n, t)
	}
	return "must be a number"
}

func isInteger(t reflect.Type) bool { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 }
func isFloat(t reflect.Type) bool   { return t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64 }

func integer(i int64, t reflect.Type) string {
	zero := reflect.Zero(t)
	if zero.CanInt() && zero.OverflowInt(i) || zero.CanUint() && (i < 0 || zero.OverflowUint(uint64(i))) {
		return outOfRange(t)
	}
	return ""
}

func float(f float64, t reflect.Type) string {
	switch {
	case isFloat(t) && reflect.Zero(t).OverflowFloat(f):
		return outOfRange(t)
	case isFloat(t):
		return ""
	case f != math.Trunc(f):
		return "must be an integer"
	case t.Size() == 8 && math.Abs(f) >= maxExact && math.Abs(f) < math.MaxInt64:
		return inexact
	case math.Abs(f) >= maxExact:
		return outOfRange(t)
	}
	return integer(int64(f), t)
}

// rounding describes the error of a value if it may be an integer to which the decoder rounded
// another number. Otherwise it returns "".
func (c *checker) rounding(v any) string {
	var f float64
	switch n := v.(type) {
	case float64:
		f = n
	case int64:
		if !c.yaml {
			return "" // a number with a fraction or an exponent is a float64
		}
		f = float64(n)
	default:
		return ""
	}
	if c.rounded == nil {
		c.rounded = roundedNumbers(c.body, !c.yaml || json.Valid(c.body))
	}
	return c.rounded[f]
}

// roundedNumbers describes the errors of the integers to which a float64 rounds other numbers in
// the body. It decodes nothing else, because the body may be long. In YAML, numbers in strings
// count, too.
func roundedNumbers(body []byte, isJSON bool) map[float64]string {
	rounded := map[float64]string{}
	for i := 0; i < len(body); i++ {
		if body[i] == '"' && isJSON {
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
			continue
		}
		end := i
		for end < len(body) && numeric[body[end]] {
			end++
		}
		if end-i > 2 {
			number := strings.ReplaceAll(string(body[i:end]), "_", "")
			f, err := strconv.ParseFloat(number, 64)
			switch {
			case err != nil || f != math.Trunc(f) || !strings.ContainsAny(number, ".eE"):
			case !integral(number):
				rounded[f] = "must be an integer"
			case math.Abs(f) >= maxExact:
				rounded[f] = inexact
			}
		}
		i = max(i, end-1)
	}
	return rounded
}

// numeric contains the characters of decimal numbers in JSON and YAML.
var numeric = func() (table [256]bool) {
	for _, c := range "+-.0123456789Ee_" {
		table[c] = true
	}
	return table
}()

// integral reports whether a number in JSON is an integer: whether its exponent moves the decimal
// point behind its last nonzero digit.
func integral(number string) bool {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimRight(whole+fraction, "0")
	if strings.Trim(digits, "+-0") == "" {
		return true
	}
	shift, err := strconv.Atoi(cmp.Or(exponent, "0"))
	return err == nil && len(whole)+shift >= len(digits)
}

func outOfRange(t reflect.Type) string { return "must be in the range of " + t.Kind().String() }

// exact adds an error for each integer in v that the decoder rounded: an integer in the range of
// uint64 but not of int64.
func (c *checker) exact(v any) {
	if c.full() {
		return
	}
	switch v := v.(type) {
	case float64:
		if math.Abs(v) >= math.MaxInt64 && math.Abs(v) <= math.MaxUint64 {
			c.wrong(v, inexact)
		}
	case map[string]any:
		for key, v := range v {
			c.enter(step{name: key})
			c.exact(v)
			c.leave()
		}
	case []any:
		for i, v := range v {
			c.enter(step{index: i})
			c.exact(v)
			c.leave()
		}
	}
}
