package shim

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sunaba-project/sunaba/shim/bundle"
)

// Checkpoint is how the state of a container's processes is to be written down.
type Checkpoint struct {
	Images string // folder for the state; it is made
	Work   string // folder for logs; it is made. "" = beside the state
	// Exit ends the container once its state is written; else it goes on.
	Exit bool

	TCP, UnixSockets, Terminal, FileLocks bool // also these, if they are open
	EmptyNamespaces                       []string
	CgroupsMode                           string
}

// Checkpointer is a Container whose engine can write its state down. It is running or paused, and stays so on error.
//
// # Errors
//
// ErrFailedPrecondition with the cause if this machine, or this container as it is, cannot be checkpointed.
type Checkpointer interface {
	Checkpoint(ctx context.Context, c Checkpoint) error
}

// Restorer is an Engine that makes containers from the state that a Checkpointer wrote. What Restore returns has no
// process yet (Pid 0): Start makes it, as it was.
type Restorer interface {
	Restore(ctx context.Context, b *Bundle, io IO, o Options, images string) (Container, error)
}

// checkpoint writes a container's state to r.Path. The container may end meanwhile, so nothing is locked.
func (t taskAPI) checkpoint(ctx context.Context, r *task.CheckpointTaskRequest) (*emptypb.Empty, error) {
	c, err := t.s.container(r.ID)
	if err != nil {
		return nil, err
	}
	how, err := checkpointOptions(r.Path, r.Options)
	if err != nil {
		return nil, err
	}
	if st, _ := c.init.snapshot(); st != running && st != paused {
		return nil, fmt.Errorf("the container is %s: %w", st, errdefs.ErrFailedPrecondition)
	}
	engine, ok := c.engine.(Checkpointer)
	if !ok {
		return nil, fmt.Errorf("the container's engine cannot save and resume what runs in it: %w", errdefs.ErrFailedPrecondition)
	}
	if err := engine.Checkpoint(ctx, how); err != nil {
		return nil, err
	}
	t.s.publish(checkpointedEvent(r.ID, how.Images))
	return &emptypb.Empty{}, nil
}

// checkpointOptions reads runc's options, as containerd's clients and our server send them.
func checkpointOptions(path string, value *anypb.Any) (Checkpoint, error) {
	var o options.CheckpointOptions
	if name := value.GetTypeUrl(); name != "" {
		if want := string(o.ProtoReflect().Descriptor().FullName()); filepath.Base(name) != want {
			return Checkpoint{}, fmt.Errorf("options are %q, not %s: %w", name, want, errdefs.ErrInvalidArgument)
		}
		if err := proto.Unmarshal(value.Value, &o); err != nil {
			return Checkpoint{}, fmt.Errorf("decode options: %w: %w", err, errdefs.ErrInvalidArgument)
		}
	}
	c := Checkpoint{
		Images: o.ImagePath, Work: o.WorkPath, Exit: o.Exit, TCP: o.OpenTcp, UnixSockets: o.ExternalUnixSockets,
		Terminal: o.Terminal, FileLocks: o.FileLocks, EmptyNamespaces: o.EmptyNamespaces, CgroupsMode: o.CgroupsMode,
	}
	if c.Images == "" {
		c.Images = path
	}
	if !filepath.IsAbs(c.Images) || c.Work != "" && !filepath.IsAbs(c.Work) {
		return c, fmt.Errorf("paths %q and %q are not absolute: %w", c.Images, c.Work, errdefs.ErrInvalidArgument)
	}
	return c, nil
}

// restore makes a container whose first process Start takes from a checkpoint.
func restore(ctx context.Context, e Engine, b *Bundle, io IO, r createRequest) (Container, error) {
	engine, ok := e.(Restorer)
	if !ok {
		return nil, fmt.Errorf("restore: engine %s cannot: %w", e.Name(), errdefs.ErrFailedPrecondition)
	}
	return engine.Restore(ctx, b, io, r.options, r.checkpoint)
}

// born makes up for what create could not do, as the first process did not exist. It is called under init's lock.
func (s *Service) born(c *container) {
	s.note(bundle.WritePid(c.path, c.init.engine.Pid()), "record pid", c.id)
	go s.watchInit(c)
}

// stillborn ends a container whose first process never came to be.
func (c *container) stillborn() bool {
	st, _ := c.init.snapshot()
	if st != created || c.init.pid() != 0 {
		return false
	}
	if c.kills != nil {
		c.kills.Close()
	}
	c.init.end(Exit{Code: 128 + uint32(sigKill), At: time.Now()}, func() {})
	return true
}
