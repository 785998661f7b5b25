// Package encode writes protobuf messages without their generated types, which cost the memory of
// every shim that uses them: a message's first use builds tables of all messages of its file.
package encode

import (
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Message is a message in the making. As in proto3, what is 0, empty or false is left out, except
// for messages.
type Message []byte

// Number appends a field of any integer type that is not negative, or a bool.
func (m *Message) Number(field int, n uint64) {
	if n != 0 {
		*m = protowire.AppendVarint(protowire.AppendTag(*m, protowire.Number(field), protowire.VarintType), n)
	}
}

// Bool appends a bool.
func (m *Message) Bool(field int, b bool) { m.Number(field, protowire.EncodeBool(b)) }

// Text appends a string.
func (m *Message) Text(field int, s string) {
	if s != "" {
		*m = protowire.AppendString(protowire.AppendTag(*m, protowire.Number(field), protowire.BytesType), s)
	}
}

// Message appends a message within the message; several times for a repeated field.
func (m *Message) Message(field int, inner Message) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, protowire.Number(field), protowire.BytesType), inner)
}

// Float appends a double.
func (m *Message) Float(field int, value float64) {
	if value != 0 {
		*m = protowire.AppendFixed64(protowire.AppendTag(*m, protowire.Number(field), protowire.Fixed64Type), math.Float64bits(value))
	}
}

// List appends a repeated number.
func (m *Message) List(field int, numbers []uint64) {
	var packed Message
	for _, n := range numbers {
		packed = protowire.AppendVarint(packed, n)
	}
	if len(packed) > 0 {
		m.Message(field, packed)
	}
}

// Time appends a google.protobuf.Timestamp, nothing for the zero time.
func (m *Message) Time(field int, t time.Time) {
	if !t.IsZero() {
		m.Message(field, Numbers([]uint64{uint64(t.Unix()), uint64(t.Nanosecond())}))
	}
}

// Numbers is a message whose fields are numbers, from 1 on.
func Numbers(values []uint64) Message {
	var m Message
	for i, n := range values {
		m.Number(i+1, n)
	}
	return m
}
