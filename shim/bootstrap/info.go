package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"

	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/api"
)

// RuntimeName is the name under which containerd's configuration refers to this shim.
const RuntimeName = "io.containerd.sunaba.v1"

// Info answers -info: it reads runtime options from in and writes a RuntimeInfo with the OCI
// runtime's features to out. A runtime too old to tell them is no error.
func Info(ctx context.Context, version string, in io.Reader, out io.Writer) error {
	input, err := io.ReadAll(io.LimitReader(in, 10<<20))
	if err != nil {
		return fmt.Errorf("read runtime options: %w", err)
	}
	info := &types.RuntimeInfo{Name: RuntimeName, Version: &types.RuntimeVersion{Version: version}}
	var options *anypb.Any
	if len(input) > 0 {
		options = &anypb.Any{}
		if err := proto.Unmarshal(input, options); err != nil {
			return fmt.Errorf("decode runtime options: %w", err)
		}
		info.Options = options
	}
	o, err := shim.DecodeOptions(options, "", "")
	if err != nil {
		return err
	}
	binary := cmp.Or(o.Binary, "runc")
	if features, err := exec.CommandContext(ctx, binary, "features").Output(); err == nil {
		info.Features = &anypb.Any{TypeUrl: api.TypeFeatures, Value: features}
	}
	answer, err := proto.Marshal(info)
	if err != nil {
		return err
	}
	_, err = out.Write(answer)
	return err
}
