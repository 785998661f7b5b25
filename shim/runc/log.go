package runc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/durable"
)

// ask runs the runtime and, when it fails, says what the runtime's log has to say. Who called the
// shim knows what it asked for, of which container, and says that in front.
func (c *container) ask(run func() error) error { return c.askWith(filepath.Join(c.dir, logName), run) }

// askWith is ask with another log than the container's, for what runs beside others of its kind.
func (c *container) askWith(path string, run func() error) error {
	var before int64
	if info, err := os.Stat(path); err == nil {
		before = info.Size()
	}
	err := run()
	if err == nil {
		return nil
	}
	text := lastError(path, before)
	if text == "" {
		err = c.unlogged(err)
	} else {
		if c.path != "" {
			text = strings.Replace(text, "in $PATH", fmt.Sprintf("in PATH %q", c.path), 1)
		}
		err = errors.New(text)
		if class := classOf(text); class != nil {
			err = fmt.Errorf("%s: %w", text, class)
		}
	}
	var errno syscall.Errno
	switch doing, nameless := strings.CutSuffix(err.Error(), "%!w(<nil>)"); {
	case errdefs.Resolve(err) != errdefs.ErrUnknown:
	case errors.As(refusal(c.dir), &errno):
		err = fmt.Errorf("%s: %w", strings.TrimSuffix(err.Error(), ": "+errno.Error()), errno)
	case nameless: // runc 1.1 where it fails to write its state
		err = fmt.Errorf("%sthe runtime does not say why: %w", doing, errdefs.ErrInternal)
	}
	return err
}

// refusal is the error of a disk that takes nothing of what a runtime writes, nil of one that does:
// not all runtimes say why they failed to write.
func refusal(dir string) error {
	f, err := durable.Create(filepath.Join(dir, "refusal"))
	if err == nil {
		_, err = f.Write(make([]byte, 64<<10))
		err = errors.Join(err, f.Discard())
	}
	if !durable.Refused(err) {
		return nil
	}
	return err
}

// unlogged is the error of a runtime without an entry in its log, as when a concurrent Delete
// removed the log. What the runtime has written to its standard error still tells the class.
func (c *container) unlogged(err error) error {
	const ran = " did not terminate successfully: " // go-runc formats the error with %s, so errors.As cannot be used
	if _, text, ok := strings.Cut(err.Error(), ran); ok {
		_, text, _ = strings.Cut(text, ": ") // after the exit status
		if class := classOf(text); class != nil {
			return fmt.Errorf("%s: %w", strings.TrimSpace(text), class)
		}
	}
	return fmt.Errorf("run %s: %w", c.runtime.Command, err)
}

// lastError returns the last message of level error behind an offset of a runtime's log.
func lastError(path string, offset int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, offset, 1<<20))
	if err != nil {
		return ""
	}
	last := ""
	for len(data) > 0 { // crun 1.28 writes an entry on several lines
		var entry struct{ Level, Msg, Message string } // Message is youki's
		d := json.NewDecoder(bytes.NewReader(data))
		if d.Decode(&entry) != nil {
			_, data, _ = bytes.Cut(data, []byte("\n"))
			continue
		}
		data = data[d.InputOffset():]
		switch strings.ToLower(entry.Level) {
		case "error", "fatal", "panic":
			text, _, _ := strings.Cut(cmp.Or(entry.Msg, entry.Message), "\n\nStack backtrace") // youki's too
			last = strings.TrimSpace(text)
		}
	}
	return last
}

// classOf reads the class of an error from the runtime's words: its exit code is 1 for all of them.
func classOf(text string) error {
	if class := classOfCommand(text); class != nil {
		return class
	}
	for _, c := range []struct {
		words string
		class error
	}{
		{"does not exist", errdefs.ErrNotFound},                    // runc; crun: container `id` does not exist
		{"is already in use", errdefs.ErrAlreadyExists},            // crun
		{"with given ID already exists", errdefs.ErrAlreadyExists}, // runc
		{"cannot exec in a ", errdefs.ErrFailedPrecondition},       // runc: stopped or paused container
		{"is not running", errdefs.ErrFailedPrecondition},          // crun
		{"process already finished", errdefs.ErrNotFound},          // runc
		{"container not running", errdefs.ErrFailedPrecondition},   // runc
		{"o space left on device", errdefs.ErrResourceExhausted},   // crun: No
		{"isk quota exceeded", errdefs.ErrResourceExhausted},
		{"cgroups in hybrid mode", errdefs.ErrFailedPrecondition.WithMessage("boot with systemd.unified_cgroup_hierarchy=1, or use runc")}, // crun
	} {
		if strings.Contains(text, c.words) {
			return c.class
		}
	}
	return nil
}

// classOfCommand is that of an error about the command itself: ErrInvalidArgument where it is not
// there, ErrPermissionDenied where it cannot be executed, nil for any other.
func classOfCommand(text string) error {
	for _, c := range []struct{ about, why string }{
		{"executable '", "not found"},                    // youki
		{"executable file", "not found"},                 // runc: the name is not in $PATH; crun
		{`exec: "`, "no such file or directory"},         // runc
		{`exec: "`, "not a directory"},                   // runc
		{"exec: no such file or directory", ""},          // runc 1.0
		{"open executable", "Not a directory"},           // crun
		{"open executable", "No such file or directory"}, // crun
		{"open `", "Not a directory"},                    // crun 1.28
	} {
		if strings.Contains(text, c.about) && strings.Contains(text, c.why) {
			return errdefs.ErrInvalidArgument
		}
	}
	for _, c := range []struct{ about, why string }{
		{`exec: "`, "permission denied"},
		{`exec: "`, "is a directory"},
		{"open executable", ""},             // crun: by the words of each errno
		{"the path `", "is not executable"}, // crun 1.28
		{"the path `", "is not a regular file"},
		{"executable '", "does not have correct permissions"}, // youki
		{"exec format error", ""},
	} {
		if strings.Contains(text, c.about) && strings.Contains(text, c.why) {
			return errdefs.ErrPermissionDenied
		}
	}
	return nil
}

var errNoTerminal = errors.New("runtime sent no terminal")
