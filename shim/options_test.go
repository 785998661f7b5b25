package shim

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	"github.com/sunaba-project/sunaba/shim/message"
)

func TestDecodeOptions(t *testing.T) {
	pack := func(m proto.Message) *message.Any {
		value, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return &message.Any{TypeURL: string(m.ProtoReflect().Descriptor().FullName()), Value: value} // as typeurl names it
	}
	file := filepath.Join(t.TempDir(), "options.toml")
	if err := os.WriteFile(file, []byte("BinaryName = 'from-file'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		in   *message.Any
		want Options
	}{
		"none": {nil, Options{Root: "/default"}},
		"runc": {pack(&options.Options{BinaryName: "crun", SystemdCgroup: true, NoPivotRoot: true}),
			Options{Binary: "crun", Root: "/default", SystemdCgroup: true, NoPivotRoot: true}},
		"all of runc's": {pack(&options.Options{NoNewKeyring: true, IoUid: 1, IoGid: 2, ShimCgroup: "/shims", CriuImagePath: "/criu"}),
			Options{Root: "/default", NoNewKeyring: true, IOUID: 1, IOGID: 2, ShimCgroup: "/shims"}},
		"runc with root": {pack(&options.Options{Root: "/r"}), Options{Root: "/r/ns"}},
		"containerd's table": {pack(&runtimeoptions.Options{ConfigBody: []byte("# runc's\n\n  BinaryName = \"/usr/bin/crun\" # not runc\n  Root = \"\"\n  SystemdCgroup = true # as the kubelet\n  CriuImagePath = ''\n")}),
			Options{Binary: "/usr/bin/crun", Root: "/default", SystemdCgroup: true}},
		"containerd's whole table": {pack(&runtimeoptions.Options{ConfigBody: []byte("BinaryName = ''\nCriuImagePath = ''\nCriuWorkPath = ''\nIoGid = 7\nIoUid = 1_000\n" +
			"NoNewKeyring = false\nNoPivotRoot = true\nRoot = '/a#b'\nShimCgroup = '/s'\nSystemdCgroup = false\n")}),
			Options{Root: "/a#b/ns", IOUID: 1000, IOGID: 7, NoPivotRoot: true, ShimCgroup: "/s"}},
		"containerd's file": {pack(&runtimeoptions.Options{ConfigPath: file}), Options{Binary: "from-file", Root: "/default"}},
	} {
		if got, err := DecodeOptions(c.in, "/default", "ns"); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	for name, in := range map[string]*message.Any{
		"other type":    {TypeURL: "some.other.Options"},
		"bad value":     {TypeURL: "containerd.runc.v1.Options", Value: []byte{0xff}},
		"bad bool":      pack(&runtimeoptions.Options{ConfigBody: []byte("SystemdCgroup = maybe\n")}),
		"bad string":    pack(&runtimeoptions.Options{ConfigBody: []byte("BinaryName = crun\n")}),
		"open string":   pack(&runtimeoptions.Options{ConfigBody: []byte("BinaryName = 'crun\n")}),
		"two strings":   pack(&runtimeoptions.Options{ConfigBody: []byte("BinaryName = 'crun' 'runc'\n")}),
		"bad number":    pack(&runtimeoptions.Options{ConfigBody: []byte("IoUid = -1\n")}),
		"unknown":       pack(&runtimeoptions.Options{ConfigBody: []byte("SystemdCGroup = true\n")}),
		"a table":       pack(&runtimeoptions.Options{ConfigBody: []byte("[options]\nSystemdCgroup = true\n")}),
		"relative root": pack(&options.Options{Root: "r"}),
	} {
		if _, err := DecodeOptions(in, "/default", "ns"); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, want invalid argument", name, err)
		}
	}
}
