package message_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/shim/message"
)

// pair is a generated type of a message, and ours.
type pair struct {
	theirs proto.Message
	ours   any
	names  map[string]string // of fields that ours calls otherwise; "" = nobody reads it
}

var pairs = []pair{
	{&anypb.Any{}, message.Any{}, nil},
	{&timestamppb.Timestamp{}, message.Timestamp{}, nil},
	{&emptypb.Empty{}, message.Empty{}, nil},
	{&wrapperspb.StringValue{}, message.Text{}, nil},
	{&types.Mount{}, mount.Mount{}, nil},
	{&task.CreateTaskRequest{}, message.CreateTaskRequest{}, nil},
	{&task.CreateTaskResponse{}, message.PidResponse{}, nil},
	{&task.StartRequest{}, message.ProcessRequest{}, nil},
	{&task.StartResponse{}, message.PidResponse{}, nil},
	{&task.DeleteRequest{}, message.ProcessRequest{}, nil},
	{&task.DeleteResponse{}, message.DeleteResponse{}, nil},
	{&task.StateRequest{}, message.ProcessRequest{}, nil},
	{&task.StateResponse{}, message.StateResponse{}, nil},
	{&task.WaitRequest{}, message.ProcessRequest{}, nil},
	{&task.WaitResponse{}, message.WaitResponse{}, nil},
	{&task.PidsRequest{}, message.ContainerRequest{}, nil},
	{&task.PidsResponse{}, message.PidsResponse{}, nil},
	{&task.PauseRequest{}, message.ContainerRequest{}, nil},
	{&task.ResumeRequest{}, message.ContainerRequest{}, nil},
	{&task.StatsRequest{}, message.ContainerRequest{}, nil},
	{&task.StatsResponse{}, message.StatsResponse{}, nil},
	{&task.ConnectRequest{}, message.ContainerRequest{}, nil},
	{&task.ConnectResponse{}, message.ConnectResponse{}, nil},
	{&task.ExecProcessRequest{}, message.ExecProcessRequest{}, nil},
	{&task.ResizePtyRequest{}, message.ResizePtyRequest{}, nil},
	{&task.KillRequest{}, message.KillRequest{}, nil},
	{&task.CloseIORequest{}, message.CloseIORequest{}, nil},
	{&task.CheckpointTaskRequest{}, message.CheckpointTaskRequest{}, nil},
	{&task.UpdateTaskRequest{}, message.UpdateTaskRequest{}, nil},
	{&task.ShutdownRequest{}, message.ShutdownRequest{}, nil},
	{&tasktypes.ProcessInfo{}, message.ProcessInfo{}, nil},
	{&runtimeoptions.Options{}, message.RuntimeOptions{}, nil},
	{&bootstrap.BootstrapParams{}, message.BootstrapParams{}, nil},
	{&bootstrap.Extension{}, message.Extension{}, nil},
	{&options.Options{}, message.RuncOptions{}, map[string]string{
		"binary_name": "Binary", "criu_image_path": "", "criu_work_path": "", "task_api_address": "", "task_api_version": "",
	}},
	{&options.CheckpointOptions{}, message.CheckpointOptions{}, map[string]string{
		"open_tcp": "TCP", "external_unix_sockets": "UnixSockets", "image_path": "Images", "work_path": "Work", "parent_path": "",
	}},
}

func (p pair) name() string { return string(p.theirs.ProtoReflect().Descriptor().FullName()) }

func (p pair) newTheirs() proto.Message { return p.theirs.ProtoReflect().New().Interface() }

func (p pair) newOurs() any { return reflect.New(reflect.TypeOf(p.ours)).Interface() }

// Every field of a message has its place in our struct, which has no others, and every message of a
// method or of such a field has a struct.
func TestEveryFieldHasItsPlace(t *testing.T) {
	known := map[string]bool{}
	for _, p := range pairs {
		known[p.name()] = true
	}
	need := func(m protoreflect.MessageDescriptor) {
		if m != nil && !m.IsMapEntry() && !known[string(m.FullName())] {
			t.Errorf("%s has no struct", m.FullName())
		}
	}
	methods := (&task.StateRequest{}).ProtoReflect().Descriptor().ParentFile().Services().Get(0).Methods()
	for i := range methods.Len() {
		need(methods.Get(i).Input())
		need(methods.Get(i).Output())
	}
	for _, p := range pairs {
		ours := reflect.TypeOf(p.ours)
		fields, read := p.theirs.ProtoReflect().Descriptor().Fields(), 0
		for i := range fields.Len() {
			field := fields.Get(i)
			need(field.Message())
			want, named := p.names[string(field.Name())]
			if !named {
				want = strings.ReplaceAll(string(field.Name()), "_", "")
			}
			if want == "" {
				continue
			}
			read++
			got := "nothing"
			if n := int(field.Number()); n <= ours.NumField() {
				got = ours.Field(n - 1).Name
			}
			if !strings.EqualFold(got, want) {
				t.Errorf("%s: field %d is %s, and in %v %s", p.name(), field.Number(), field.Name(), ours, got)
			}
		}
		for i := range ours.NumField() {
			if ours.Field(i).Name == "_" {
				read++
			}
		}
		if read != ours.NumField() {
			t.Errorf("%v has %d fields, of which %s has %d", ours, ours.NumField(), p.name(), read)
		}
	}
}

func TestStatuses(t *testing.T) {
	for n, name := range tasktypes.Status_name {
		if int(n) >= len(message.Statuses) || !strings.EqualFold(message.Statuses[n], name) {
			t.Errorf("status %d is %s, and here one of %q", n, name, message.Statuses)
		}
	}
}

// What containerd's types write ours read, and write again.
func TestTheirsThroughOurs(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, p := range pairs {
		for range 300 {
			theirs := p.newTheirs()
			fill(random, theirs.ProtoReflect())
			data := marshal(t, theirs)
			ours := p.newOurs()
			if err := message.Unmarshal(data, ours); err != nil {
				t.Fatalf("%s: %v", p.name(), err)
			}
			again := p.newTheirs()
			if err := proto.Unmarshal(message.Marshal(ours), again); err != nil {
				t.Fatalf("%s: %v", p.name(), err)
			}
			p.normalize(theirs)
			if !proto.Equal(theirs, again) {
				t.Fatalf("%s:\n%v became\n%v", p.name(), theirs, again)
			}
		}
	}
}

// What ours write containerd's types read, and write again.
func TestOursThroughTheirs(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, p := range pairs {
		for range 300 {
			ours := p.newOurs()
			fillOurs(random, reflect.ValueOf(ours).Elem())
			theirs := p.newTheirs()
			if err := proto.Unmarshal(message.Marshal(ours), theirs); err != nil || len(theirs.ProtoReflect().GetUnknown()) > 0 {
				t.Fatalf("%s: %v, %v", p.name(), err, theirs)
			}
			again := p.newOurs()
			if err := message.Unmarshal(marshal(t, theirs), again); err != nil {
				t.Fatalf("%s: %v", p.name(), err)
			}
			if !reflect.DeepEqual(ours, again) {
				t.Fatalf("%s:\n%+v became\n%+v", p.name(), ours, again)
			}
		}
	}
}

// hostile are bytes that are no message, or hardly one.
var hostile = [][]byte{
	{0x00}, {0x07}, {0x0c}, {0x0e}, {0x0f}, {0x0b}, {0x0b, 0x0c}, {0x0b, 0x14}, // field 0, wire types that do not exist, groups
	{0x0a}, {0x0a, 0x05, 'a'}, {0x0a, 0x02, 0xff, 0xfe}, // no length, too short, not UTF-8
	{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}, {0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, // huge lengths
	{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
	{0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, {0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02},
	{0x09, 1, 2, 3, 4, 5, 6, 7}, {0x09, 1, 2, 3, 4, 5, 6, 7, 8}, {0x0d, 1, 2, 3}, {0x0d, 1, 2, 3, 4},
	{0xf8, 0xff, 0xff, 0xff, 0x0f, 0x00}, {0xf8, 0xff, 0xff, 0xff, 0x7f, 0x00}, {0x8a, 0x00, 0x01, 'a'}, // the last number, one beyond, an overlong tag
	{0xf8, 0xff, 0xff, 0xff, 0x1f, 0x00}, {0x1a, 0x06, 0xf8, 0xff, 0xff, 0xff, 0x1f, 0x00}, {0x52, 0x06, 0xf8, 0xff, 0xff, 0xff, 0x1f, 0x00}, {0x52, 0x04, 0x0a, 0x02, 'a', 0xff}, {0x52, 0x02, 0x0a, 0x05}, // within messages
	{0x52, 0x03, 0x0a, 0x01, 'a', 0x52, 0x03, 0x12, 0x01, 'b', 0x52, 0x03, 0x0a, 0x01, 'c'}, // one message in three parts
	[]byte(strings.Repeat("\x0b", 9_999) + strings.Repeat("\x0c", 9_999)), []byte(strings.Repeat("\x0b", 20_000) + strings.Repeat("\x0c", 20_000)),
	[]byte(strings.Repeat("\x52\x02", 50)), []byte(strings.Repeat("\x0a\x00\x1a\x00", 1000)),
}

// Bytes that are no message are refused as containerd's types refuse them, and read as those read
// them if they are one.
func TestHostileBytes(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, p := range pairs {
		for _, data := range hostile {
			p.agree(t, data)
		}
		for range 50 {
			theirs := p.newTheirs()
			fill(random, theirs.ProtoReflect())
			data := marshal(t, theirs)
			for n := range min(len(data), 100) {
				p.agree(t, data[:n])
				mutated := slices.Clone(data)
				mutated[random.IntN(len(mutated))] = byte(random.Uint32())
				p.agree(t, mutated)
			}
			for _, more := range hostile[:len(hostile)-4] {
				p.agree(t, append(slices.Clip(data), more...))
			}
		}
	}
}

// FuzzUnmarshal compares with containerd's generated types.
func FuzzUnmarshal(f *testing.F) {
	random := rand.New(rand.NewPCG(7, 8))
	for i, p := range pairs {
		theirs := p.newTheirs()
		fill(random, theirs.ProtoReflect())
		data, err := proto.Marshal(theirs)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), data)
		f.Add(uint8(i), hostile[i%len(hostile)])
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) { pairs[int(which)%len(pairs)].agree(t, data) })
}

// agree has both types read the same bytes, ours as a shim reads them from ttrpc.
func (p pair) agree(t *testing.T, data []byte) {
	t.Helper()
	theirs, ours, wrapped := p.newTheirs(), p.newOurs(), message.Wrap(nil)
	theirErr := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, theirs)
	err := proto.Unmarshal(data, wrapped)
	if err == nil {
		err = message.Unmarshal(wrapped.ProtoReflect().GetUnknown(), ours)
	}
	direct := p.newOurs()
	if directErr := message.Unmarshal(data, direct); (directErr == nil) != (err == nil) || err == nil && !reflect.DeepEqual(direct, ours) {
		t.Fatalf("%s of %x: %+v, %v; without ttrpc %+v, %v", p.name(), data, ours, err, direct, directErr)
	}
	if err == nil && theirErr != nil && slices.Contains(slices.Collect(maps.Values(p.names)), "") && strings.Contains(theirErr.Error(), "UTF-8") {
		return // in a field that nobody reads
	}
	if (err == nil) != (theirErr == nil) {
		t.Fatalf("%s of %x: %v, protobuf's: %v", p.name(), data, err, theirErr)
	}
	if err != nil {
		return
	}
	again := p.newTheirs()
	if err := proto.Unmarshal(message.Marshal(ours), again); err != nil {
		t.Fatalf("%s of %x: %v", p.name(), data, err)
	}
	p.normalize(theirs)
	if !proto.Equal(theirs, again) {
		t.Fatalf("%s of %x:\n%v, protobuf's:\n%v", p.name(), data, again, theirs)
	}
}

// normalize clears what ours does not keep: fields that nobody reads, and that an optional string
// was given which is empty.
func (p pair) normalize(m proto.Message) {
	r := m.ProtoReflect()
	r.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name, named := p.names[string(field.Name())]
		if named && name == "" || field.HasPresence() && field.Kind() == protoreflect.StringKind && v.String() == "" {
			r.Clear(field)
		}
		return true
	})
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// fill sets most fields of a generated message.
func fill(random *rand.Rand, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case random.IntN(4) == 0:
		case field.IsMap():
			for range random.IntN(3) {
				m.Mutable(field).Map().Set(protoreflect.ValueOfString(text(random)).MapKey(), protoreflect.ValueOfString(text(random)))
			}
		case field.IsList():
			list := m.Mutable(field).List()
			for range random.IntN(3) {
				if field.Message() != nil {
					fill(random, list.AppendMutable().Message())
				} else {
					list.Append(scalar(random, field))
				}
			}
		case field.Message() != nil:
			fill(random, m.Mutable(field).Message())
		default:
			m.Set(field, scalar(random, field))
		}
	}
}

func scalar(random *rand.Rand, field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(random.IntN(2) == 0)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(random.Uint32()))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(random.IntN(20) - 10))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(random.Uint64()))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(random.Uint32())
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text(random))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(text(random) + "\xff"))
	}
	panic(fmt.Sprintf("%s is a %s", field.FullName(), field.Kind()))
}

func text(random *rand.Rand) string {
	return strings.Repeat("é", random.IntN(3)*random.IntN(80)) + strings.Repeat("a", random.IntN(3))
}

// fillOurs sets most fields of a struct.
func fillOurs(random *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(random.IntN(2) == 0)
	case reflect.Int32, reflect.Int64:
		v.SetInt(int64(random.Uint64()))
	case reflect.Uint32:
		v.SetUint(random.Uint64())
	case reflect.String:
		v.SetString(text(random))
	case reflect.Uint8:
		v.SetUint(random.Uint64() & 0xff)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillOurs(random, v.Elem())
	case reflect.Slice:
		for range random.IntN(3) {
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			fillOurs(random, v.Index(v.Len()-1))
		}
		distinct(v)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() && random.IntN(4) > 0 {
				fillOurs(random, v.Field(i))
			}
		}
	}
}

// distinct leaves one entry of a map, whose order is not kept.
func distinct(v reflect.Value) {
	if v.Type().Elem() == reflect.TypeOf(message.Entry{}) && v.Len() > 1 {
		v.SetLen(1)
	}
}
