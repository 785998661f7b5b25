package shim

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// Register offers the service on a ttrpc server: the Task API in both versions, whose messages are
// alike on the wire, and what our own callers ask beyond it.
func (s *Service) Register(server *ttrpc.Server) {
	t := taskAPI{s}
	methods := &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"State":      unary(t.state),
		"Create":     unary(t.create),
		"Start":      unary(t.start),
		"Delete":     unary(t.delete),
		"Pids":       unary(t.pids),
		"Pause":      unary(t.pause),
		"Resume":     unary(t.resume),
		"Checkpoint": unary(t.checkpoint),
		"Kill":       unary(t.kill),
		"Exec":       unary(t.exec),
		"ResizePty":  unary(t.resizePty),
		"CloseIO":    unary(t.closeIO),
		"Update":     unary(t.update),
		"Wait":       unary(t.wait),
		"Stats":      unary(t.stats),
		"Connect":    unary(t.connect),
		"Shutdown":   unary(t.shutdown),
	}}
	server.RegisterService(api.TaskService, methods)
	server.RegisterService(api.TaskServiceV2, methods)
	server.RegisterService(api.ExtraService, &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		api.MethodReopen:  unary(s.reopenLog),
		api.MethodDetails: unary(s.details),
		api.MethodAttach:  unary(s.attach),
	}})
}

// unary is a method that takes and gives one message.
func unary[M any, Q interface {
	*M
	proto.Message
}, A proto.Message](call func(context.Context, Q) (A, error)) ttrpc.Method {
	return func(ctx context.Context, unmarshal func(any) error) (any, error) {
		q := Q(new(M))
		if err := unmarshal(q); err != nil {
			return nil, fmt.Errorf("decode request: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		a, err := call(ctx, q)
		if err != nil {
			return nil, api.ToStatus(err)
		}
		return a, nil
	}
}

func (s *Service) reopenLog(ctx context.Context, id *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	c, err := s.container(id.Value)
	if err != nil {
		return nil, err
	}
	if err := c.init.streams.Reopen(); err != nil {
		return nil, err
	}
	return &wrapperspb.StringValue{}, nil
}

func (s *Service) details(ctx context.Context, id *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	c, err := s.container(id.Value)
	if err != nil {
		return nil, err
	}
	d := c.engine.Details()
	if st, exit := c.init.snapshot(); st >= stopped {
		d.Exit = &exit
	}
	if d.PID == 0 {
		d.PID = c.init.engine.Pid()
	}
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return wrapperspb.String(string(text)), nil
}

func (s *Service) attach(ctx context.Context, req *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	var r api.AttachRequest
	if err := json.Unmarshal([]byte(req.Value), &r); err != nil {
		return nil, fmt.Errorf("decode request: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	c, err := s.container(r.ID)
	if err != nil {
		return nil, err
	}
	if st, _ := c.init.snapshot(); st != running && st != paused {
		return nil, fmt.Errorf("attach to container %q: it is %s: %w", r.ID, st, errdefs.ErrFailedPrecondition)
	}
	err = c.init.streams.Attach(stdio.Attachment{
		Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Once: r.Once, Ended: s.options.Settled,
	})
	if err != nil {
		return nil, fmt.Errorf("container %q: %w", r.ID, err)
	}
	return &wrapperspb.StringValue{}, nil
}

// typed wraps a message under its bare name, which containerd compares.
func typed(m proto.Message) (*anypb.Any, error) {
	value, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return &anypb.Any{TypeUrl: string(m.ProtoReflect().Descriptor().FullName()), Value: value}, nil
}

// DecodeOptions reads how a caller of the Task API wants its OCI runtime to be run.
func DecodeOptions(value *anypb.Any) (Options, error) { return decodeOptions(value, ServiceOptions{}) }

// decodeOptions reads how the caller wants its OCI runtime to be run: runc's options as our
// server and containerd's clients send them, or the ones containerd's CRI plugin makes from its configuration.
func decodeOptions(value *anypb.Any, s ServiceOptions) (Options, error) {
	o := Options{Root: s.RuntimeRoot}
	name := value.GetTypeUrl()
	switch name = name[strings.LastIndexByte(name, '/')+1:]; name {
	case "":
	case "containerd.runc.v1.Options":
		var r options.Options
		if err := proto.Unmarshal(value.Value, &r); err != nil {
			return o, fmt.Errorf("decode runtime options: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		o.Binary, o.SystemdCgroup, o.NoPivotRoot = r.BinaryName, r.SystemdCgroup, r.NoPivotRoot
		if r.Root != "" {
			o.Root = filepath.Join(r.Root, s.Namespace) // as containerd's own shim
		}
	case "runtimeoptions.v1.Options":
		var r runtimeoptions.Options
		if err := proto.Unmarshal(value.Value, &r); err != nil {
			return o, fmt.Errorf("decode runtime options: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		text := r.ConfigBody
		if len(text) == 0 && r.ConfigPath != "" {
			var err error
			if text, err = os.ReadFile(r.ConfigPath); err != nil {
				return o, fmt.Errorf("read runtime options: %w", err)
			}
		}
		if err := o.read(string(text), s.Namespace); err != nil {
			return o, err
		}
	default:
		return o, fmt.Errorf("runtime options of type %q: %w", name, errdefs.ErrInvalidArgument)
	}
	if o.Root != "" && !filepath.IsAbs(o.Root) {
		return o, fmt.Errorf("runtime root %q: path is not absolute: %w", o.Root, errdefs.ErrInvalidArgument)
	}
	return o, nil
}

// read takes the lines of containerd's options table for a runtime: TOML of the form name = value, the names as for runc.
func (o *Options) read(text, namespace string) error {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), "=")
		if !ok {
			continue // blank, comment or table header
		}
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		var err error
		switch name {
		case "BinaryName":
			o.Binary, err = unquote(value)
		case "Root":
			var root string
			if root, err = unquote(value); root != "" {
				o.Root = filepath.Join(root, namespace)
			}
		case "SystemdCgroup":
			o.SystemdCgroup, err = strconv.ParseBool(value)
		case "NoPivotRoot":
			o.NoPivotRoot, err = strconv.ParseBool(value)
		}
		if err != nil {
			return fmt.Errorf("runtime option %s = %s: %w: %w", name, value, err, errdefs.ErrInvalidArgument)
		}
	}
	return lines.Err()
}

// unquote reads a TOML string on one line.
func unquote(value string) (string, error) {
	if literal, ok := strings.CutPrefix(value, "'"); ok {
		return strings.TrimSuffix(literal, "'"), nil
	}
	return strconv.Unquote(value)
}
