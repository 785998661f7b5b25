package merge

import (
	"fmt"
	"math"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// Value types.
const (
	typeI32       = 0x7f
	typeI64       = 0x7e
	typeF32       = 0x7d
	typeF64       = 0x7c
	typeV128      = 0x7b
	typeFuncref   = 0x70
	typeExternref = 0x6f
)

// checkValueType returns an error for what is no value type that is known.
func checkValueType(t byte) error {
	switch {
	case t >= typeV128 && t <= typeI32 || t == typeFuncref || t == typeExternref:
		return nil
	case t == 0x69 || t == 0x74: // exnref, noexn
		return errExceptions
	case t >= 0x63 && t <= 0x73:
		return errGC
	}
	return invalid("unknown value type 0x%02x", t)
}

// checkReferenceType returns an error for what is no type of references that is known.
func checkReferenceType(t byte) error {
	if err := checkValueType(t); err != nil {
		return err
	}
	if t != typeFuncref && t != typeExternref {
		return invalid("value type 0x%02x is not a reference type", t)
	}
	return nil
}

type table struct {
	element byte
	limits  format.Limits
}

type memory struct {
	limits format.Limits
	owner  string // the instance that defines it
}

type globalType struct {
	value   byte
	mutable bool
}

type global struct {
	globalType
	initial constant
}

// export is an export of the output.
type export struct {
	name  string
	kind  byte
	index uint32
}

// start is one step of instantiating, from the first start function on.
type start struct {
	element, data int // late segments, -1 for none
	function      uint32
}

// limits reads the limits of a memory or a table, of at most most pages or elements.
func (r *reader) limits(most uint64) format.Limits {
	l := r.Limits()
	switch {
	case r.Bad:
	case l.Flags&format.LimitsShared != 0:
		r.refuse(errThreads)
	case l.Flags&format.LimitsWide != 0:
		r.refuse(errMemory64)
	case l.Min > most || l.Max > most || l.Flags&format.LimitsHaveMax != 0 && l.Min > l.Max:
		r.refuse(invalid("limits %d to %d", l.Min, l.Max))
	}
	return l
}

const (
	maxPages = 1 << 16
	pageSize = 1 << 16
)

func (r *reader) memoryLimits() format.Limits { return r.limits(maxPages) }

func (r *reader) table() table {
	t := table{element: r.Octet()}
	switch {
	case t.element == 0x40:
		r.refuse(errTables)
	case !r.Bad:
		r.refuse(checkReferenceType(t.element))
	}
	t.limits = r.limits(math.MaxUint32)
	return t
}

func (r *reader) globalType() globalType {
	t, mutable := r.Octet(), r.Octet()
	if !r.Bad {
		r.refuse(checkValueType(t))
	}
	if mutable > 1 {
		r.refuse(invalid("unknown mutability 0x%02x of a global", mutable))
	}
	return globalType{t, mutable == 1}
}

// limitsMismatch says why limits do not suit an import with the limits of want, "" if they do.
func limitsMismatch(have, want format.Limits, unit string) string {
	switch {
	case have.Min < want.Min:
		return fmt.Sprintf("it has %d %s at first, and %d are needed", have.Min, unit, want.Min)
	case want.Flags&format.LimitsHaveMax == 0:
	case have.Flags&format.LimitsHaveMax == 0:
		return fmt.Sprintf("it has no maximum, and one of at most %d %s is needed", want.Max, unit)
	case have.Max > want.Max:
		return fmt.Sprintf("its maximum is %d %s, and one of at most %d is needed", have.Max, unit, want.Max)
	}
	return ""
}
