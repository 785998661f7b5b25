// Package message has the protobuf messages of containerd's runtime API as plain structs, and reads
// and writes them. Generated types cost the memory of every process of the shim's binary: their
// tables are made when a program starts, and more of them at a message's first use.
//
// The fields of a struct are those of the message in the order of their numbers, from 1 on. A blank
// field stands for a number that is not used, and fields at the end that nobody reads may be left
// out. A map is a slice of its entries. As in proto3, what is 0, empty or false is not written; a
// message is left out if its pointer is nil.
package message

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Wrap makes of an encoded message one that ttrpc sends: the empty message keeps whatever it does
// not know, and writes it as it is.
func Wrap(encoded []byte) *emptypb.Empty {
	m := &emptypb.Empty{}
	m.ProtoReflect().SetUnknown(encoded)
	return m
}

// Unwrap reads what ttrpc received as such a message, like Unmarshal.
func Unwrap(m *emptypb.Empty, to any) error {
	return Unmarshal(m.ProtoReflect().GetUnknown(), to)
}

// Marshal writes a message, from a pointer to its struct. Whoever reads it refuses a string that is
// not UTF-8.
func Marshal(m any) []byte { return appendMessage([]byte{}, reflect.ValueOf(m).Elem()) }

// Fields writes a message of which these are the fields, from 1 on. A message within it may be
// encoded already: nil leaves it out.
func Fields[T any](fields ...T) []byte {
	m := []byte{}
	for i, field := range fields {
		m = Append(m, i+1, field)
	}
	return m
}

// Append writes one more field of a message.
func Append(m []byte, number int, field any) []byte {
	if f := reflect.ValueOf(field); !f.IsZero() {
		m = appendField(m, protowire.Number(number), f)
	}
	return m
}

func appendMessage(b []byte, m reflect.Value) []byte {
	for i := range m.NumField() {
		if f := m.Field(i); !f.IsZero() {
			b = appendField(b, protowire.Number(i+1), f)
		}
	}
	return b
}

func appendField(b []byte, number protowire.Number, f reflect.Value) []byte {
	var data []byte
	switch f.Kind() {
	case reflect.Bool:
		return appendVarint(b, number, protowire.EncodeBool(f.Bool()))
	case reflect.Int32, reflect.Int64:
		return appendVarint(b, number, uint64(f.Int()))
	case reflect.Uint32, reflect.Uint64:
		return appendVarint(b, number, f.Uint())
	case reflect.Float64:
		return protowire.AppendFixed64(protowire.AppendTag(b, number, protowire.Fixed64Type), math.Float64bits(f.Float()))
	case reflect.Pointer:
		return appendField(b, number, f.Elem())
	case reflect.String:
		data = []byte(f.String())
	case reflect.Struct:
		data = appendMessage(nil, f)
	case reflect.Slice:
		if !isBytes(f) {
			for i := range f.Len() {
				b = appendField(b, number, f.Index(i))
			}
			return b
		}
		data = f.Bytes()
	default:
		panic(fmt.Sprintf("message: field of type %s", f.Type()))
	}
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), data)
}

func appendVarint(b []byte, number protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), n)
}

func isBytes(f reflect.Value) bool { return f.Type().Elem().Kind() == reflect.Uint8 }

// Unmarshal reads a message into the struct that to points to. It takes and refuses what protobuf's
// own decoder does: the last value of a field counts, messages are merged, and what is not known is
// skipped, as is a value of another wire type than the field's.
func Unmarshal(data []byte, to any) error { return readMessage(data, reflect.ValueOf(to).Elem()) }

func readMessage(data []byte, m reflect.Value) error {
	for len(data) > 0 {
		number, wire, n := protowire.ConsumeTag(data)
		size := protowire.ConsumeFieldValue(number, wire, data[max(n, 0):])
		if n < 0 || size < 0 || !number.IsValid() {
			return errors.New("cannot parse invalid wire-format data")
		}
		if i := int(number) - 1; i < m.NumField() && m.Field(i).CanSet() {
			if err := readField(data[n:n+size], wire, m.Field(i)); err != nil {
				return err
			}
		}
		data = data[n+size:]
	}
	return nil
}

func readField(data []byte, wire protowire.Type, f reflect.Value) error {
	switch wire {
	case protowire.VarintType:
		n, _ := protowire.ConsumeVarint(data)
		switch f.Kind() {
		case reflect.Bool:
			f.SetBool(protowire.DecodeBool(n))
		case reflect.Int32, reflect.Int64:
			f.SetInt(int64(n))
		case reflect.Uint32, reflect.Uint64:
			f.SetUint(n)
		}
	case protowire.BytesType:
		data, _ = protowire.ConsumeBytes(data)
		return readBytes(data, f)
	}
	return nil
}

func readBytes(data []byte, f reflect.Value) error {
	switch f.Kind() {
	case reflect.String:
		if !utf8.Valid(data) {
			return errors.New("string field contains invalid UTF-8")
		}
		f.SetString(string(data))
	case reflect.Pointer:
		if f.IsNil() {
			f.Set(reflect.New(f.Type().Elem()))
		}
		return readMessage(data, f.Elem())
	case reflect.Struct:
		return readMessage(data, f)
	case reflect.Slice:
		if isBytes(f) {
			f.SetBytes(append([]byte(nil), data...))
			return nil
		}
		f.Set(reflect.Append(f, reflect.Zero(f.Type().Elem())))
		return readBytes(data, f.Index(f.Len()-1))
	}
	return nil
}
