package run

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/execstream"
	podobjects "github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/terminal"
	"github.com/sunaba-project/sunaba/criserver/session"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/shim/annotation"
)

// catchUpTime is how long a container that is started again waits for the streams of its last run.
const catchUpTime = 10 * time.Second

// leaveTime is how long the streams of a container that was removed may take to end.
const leaveTime = 2 * time.Second

// attached is the container of a run whose streams are the command's own, with -i and -t. Its
// output waits in the shim until the command is attached, so that nothing of it is missed. The
// command attaches again to a container that is restarted. nil stands for a run without -i and -t.
type attached struct {
	*runner
	name    string
	tty     bool // the container has a terminal
	trusted *tls.Config
	input   *input      // nil without -i
	raw     atomic.Bool // the command's terminal shows lines as they are
	tell    chan struct{}
	ctx     context.Context // of the streams
	cut     context.CancelFunc
	late    context.Context // ends when nobody waits for the streams' end any more
	hurry   context.CancelFunc

	mu      sync.Mutex
	over    *streamsEnd  // of the present streams; nil before any
	restore func() error // gives the terminal back; nil if it has its own mode
	why     error        // what ends the run
}

// newAttached chooses the container that takes part in the command's streams, and gives it what it
// needs for that. It is nil without -i and -t.
func newAttached(ctx context.Context, r *runner) (*attached, error) {
	if !r.Interactive && !r.TTY {
		return nil, nil
	}
	state := r.client.Config().StateDir
	if state == "" {
		return nil, fmt.Errorf("the server at %q is not sunaba: -i and -t need one whose containers wait for who attaches: %w", r.Socket, errdefs.ErrNotImplemented)
	}
	name, err := podobjects.PickContainer(r.pod, r.Container, r.Stderr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	a := &attached{runner: r, name: name, tell: make(chan struct{}, 1)}
	if r.TTY && r.Interactive && !terminal.Is(r.Stdin) {
		fmt.Fprintln(r.Stderr, terminal.NoTerminal)
		r.TTY = false
	}
	for _, list := range [][]corev1.Container{r.pod.Spec.InitContainers, r.pod.Spec.Containers} {
		for i := range list {
			if c := &list[i]; c.Name == name {
				c.Stdin, c.StdinOnce, c.TTY = c.Stdin || r.Interactive, c.StdinOnce || r.Interactive, c.TTY || r.TTY
				a.tty = c.TTY
			}
		}
	}
	if r.Interactive {
		a.input = &input{from: r.Stdin, chunks: make(chan []byte)}
	}
	if a.trusted, err = trusted(ctx, state); err != nil {
		return nil, err
	}
	a.ctx, a.cut = context.WithCancel(context.WithoutCancel(ctx))
	a.late, a.hurry = context.WithCancel(a.ctx)
	return a, nil
}

// trusted says which certificate the streams of a server have, nil if they have none of its own.
func trusted(ctx context.Context, state string) (_ *tls.Config, err error) {
	c, err := api.Connect(ctx, filepath.Join(state, api.SocketName))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	info, err := c.Server(ctx)
	if err != nil || info.StreamCertificate == "" {
		return nil, err
	}
	return execstream.Pinned(info.StreamCertificate), nil
}

// is says whether a container to be created is this one, whose output is to wait then.
func (a *attached) is(c *runtime.ContainerConfig) bool {
	if a == nil || c.GetMetadata().GetName() != a.name {
		return false
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[annotation.AwaitAttach] = "true"
	return true
}

// expect says that the container is being started, when the streams of its last run have ended, or
// ends them if nobody takes what is left of them for catchUpTime. It returns what start takes.
func (a *attached) expect(ctx context.Context) (over *streamsEnd) {
	if last := a.ended(); last != nil {
		select {
		case <-last:
		case <-ctx.Done():
		case <-a.ctx.Done():
		case <-time.After(catchUpTime):
		}
		_ = a.giveBack() // nothing is left to do where it fails
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over != nil {
		a.over.close()
	}
	a.over = &streamsEnd{come: make(chan struct{})}
	return a.over
}

// streamsEnd is the end of the streams of one run of the container.
type streamsEnd struct {
	come chan struct{}
	once sync.Once
}

func (e *streamsEnd) close() { e.once.Do(func() { close(e.come) }) }

// start connects the streams of the container that was started, unless it failed to.
func (a *attached) start(id, name string, over *streamsEnd, startErr error) {
	if startErr != nil {
		a.end(over, nil)
		return
	}
	go func() {
		err := a.takePart(id)
		switch {
		case a.ctx.Err() != nil:
			err = nil
		case errors.Is(err, syscall.EPIPE): // nobody reads the output any more
			a.hangup()
			err = nil
		case errdefs.IsUnknown(err) && !shimDied(err): // the container has closed its outputs, and may still run
			a.say("container %s: %v", name, err)
			err = nil
		case unwritten(err):
			err = fmt.Errorf("write output of container %q: %w", name, err)
		case err != nil:
			err = fmt.Errorf("the connection with container %q is lost: %w", name, err)
		}
		a.end(over, err)
	}()
}

// unwritten says whether streams have ended because a file, not a connection, could not be written.
func unwritten(err error) bool {
	var file *fs.PathError
	return errors.As(err, &file) && file.Op == "write"
}

// shimDied says whether streams have ended because the container has another shim.
func shimDied(err error) bool { return strings.Contains(err.Error(), session.ErrShimDied.Error()) }

// takePart carries the streams until they end.
func (a *attached) takePart(id string) (err error) {
	streams, typed, done, err := terminal.Open(a.Stdin, a.Stdout, a.Stderr, a.Interactive, a.TTY)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.restore = done
	a.mu.Unlock()
	a.raw.Store(typed)
	defer func() { err = errors.Join(err, a.giveBack()) }()
	ctx, ended := context.WithCancel(a.ctx)
	defer ended()
	if a.Interactive {
		streams.Stdin = a.input.until(ctx, a.tty) // a terminal has no end of input
	}
	if a.tty {
		streams.Stderr = nil // a terminal has one output
	}
	resp, err := a.client.Attach(ctx, &runtime.AttachRequest{
		ContainerId: id, Tty: a.tty, Stdin: streams.Stdin != nil, Stdout: true, Stderr: streams.Stderr != nil,
	})
	if err != nil {
		return dial.Native(err)
	}
	_, err = execstream.Run(ctx, resp.GetUrl(), a.trusted, streams)
	return err
}

// giveBack restores the mode of the terminal, if it was changed.
func (a *attached) giveBack() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	restore := a.restore
	a.restore = nil
	a.raw.Store(false)
	if restore == nil {
		return nil
	}
	return restore()
}

// end says that these streams have ended; why is not nil if that ends the run.
func (a *attached) end(over *streamsEnd, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if why != nil {
		a.why = why
	}
	over.close()
	select {
	case a.tell <- struct{}{}:
	default:
	}
}

// news has something after each end of streams.
func (a *attached) news() <-chan struct{} {
	if a == nil {
		return nil
	}
	return a.tell
}

// failure is what ends the run, nil if nothing does.
func (a *attached) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.why
}

// ended is closed when there are no streams, or no more; nil before any.
func (a *attached) ended() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over == nil {
		return nil
	}
	return a.over.come
}

// busy says whether the streams have not ended yet.
func (a *attached) busy() bool {
	if a == nil {
		return false
	}
	over := a.ended()
	if over == nil {
		return false
	}
	select {
	case <-over:
		return false
	default:
		return true
	}
}

// wait returns when the streams have ended, or the run does not wait for them any more.
func (a *attached) wait() {
	over := a.ended()
	if over == nil {
		return
	}
	select {
	case <-over:
	case <-a.ctx.Done():
	}
}

// letEnd returns when the streams have ended, however late their reader takes them, or the pod is
// being deleted.
func (a *attached) letEnd(ctx context.Context) {
	if !a.busy() {
		return
	}
	select {
	case <-a.ended():
	case <-a.late.Done():
	case <-ctx.Done():
	}
}

// leave ends the streams at the end of the run, and gives the terminal back in any case.
func (a *attached) leave() {
	if a == nil {
		return
	}
	if a.busy() {
		select {
		case <-a.ended():
		case <-time.After(leaveTime):
		}
	}
	a.cut()
	if err := a.giveBack(); err != nil {
		a.say("%v", err)
	}
}

// lineEnd ends a line on the command's terminal.
func (a *attached) lineEnd() string {
	if a != nil && a.raw.Load() {
		return "\r\n"
	}
	return "\n"
}
