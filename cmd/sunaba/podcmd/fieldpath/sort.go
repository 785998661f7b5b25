package fieldpath

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Sort sorts objects by a field, as kubectl's --sort-by does: numbers and quantities by their size,
// texts by the numbers in them (a2 before a10), those without the field first.
func (p *Path) Sort(objects []json.RawMessage) error {
	type keyed struct {
		raw json.RawMessage
		key any // nil if it has none
	}
	all, found := make([]keyed, len(objects)), false
	for n, raw := range objects {
		values, err := p.Values(raw)
		if err != nil {
			return err
		}
		all[n].raw = raw
		if len(values) > 0 {
			all[n].key, found = values[0], true
		}
	}
	if !found && len(objects) > 0 {
		return fmt.Errorf("couldn't find any field with path %q in the list of objects", p.text)
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return compare(a.key, b.key) })
	for n := range all {
		objects[n] = all[n].raw
	}
	return nil
}

func compare(a, b any) int {
	if a == nil || b == nil {
		return cmp.Compare(order(a != nil), order(b != nil))
	}
	x, xNumber := number(a)
	y, yNumber := number(b)
	if xNumber && yNumber {
		return cmp.Compare(x, y)
	}
	s, t := fmt.Sprint(a), fmt.Sprint(b)
	if q, err := resource.ParseQuantity(s); err == nil {
		if r, err := resource.ParseQuantity(t); err == nil {
			return q.Cmp(r)
		}
	}
	return natural(s, t)
}

func order(b bool) int {
	if b {
		return 1
	}
	return 0
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// natural compares texts, in which numbers count by their size.
func natural(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x == "" || y == "" {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		m, n := strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if c := cmp.Or(cmp.Compare(len(m), len(n)), strings.Compare(m, n), cmp.Compare(len(x), len(y))); c != 0 {
			return c
		}
		a, b = a[len(x):], b[len(y):]
	}
	return cmp.Compare(len(a), len(b))
}

// digits are those with which a text starts.
func digits(s string) string {
	if end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		return s[:end]
	}
	return s
}
