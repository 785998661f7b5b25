package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/message"
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
	var options, features *message.Any
	if len(input) > 0 {
		options = &message.Any{}
		if err := message.Unmarshal(input, options); err != nil {
			return fmt.Errorf("decode runtime options: %w", err)
		}
	}
	o, err := shim.DecodeOptions(options, "", "")
	if err != nil {
		return err
	}
	binary := cmp.Or(o.Binary, "runc")
	if text, err := exec.CommandContext(ctx, binary, "features").Output(); err == nil {
		features = &message.Any{TypeURL: api.TypeFeatures, Value: text}
	}
	_, err = out.Write(message.Fields[any](RuntimeName, message.Fields(version), options, features))
	return err
}
