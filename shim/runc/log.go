package runc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
)

// ask runs the runtime and, when it fails, says what the runtime's log has to say. Who called the shim knows what it asked
// for, of which container, and says that in front.
func (c *container) ask(run func() error) error {
	path := filepath.Join(c.dir, logName)
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
		return fmt.Errorf("run %s: %w", c.runtime.Command, err)
	}
	if class := classOf(text); class != nil {
		return fmt.Errorf("%s: %w", text, class)
	}
	return errors.New(text)
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
	for line := range bytes.Lines(data) {
		var entry struct{ Level, Msg string }
		if json.Unmarshal(line, &entry) != nil {
			continue
		}
		switch entry.Level {
		case "error", "fatal", "panic":
			last = strings.TrimSpace(entry.Msg)
		}
	}
	return last
}

// classOf reads the class of an error from the runtime's words: its exit code is 1 for all of them.
func classOf(text string) error {
	for _, c := range []struct {
		words string
		class error
	}{
		{"container does not exist", errdefs.ErrNotFound},           // runc
		{"does not exist", errdefs.ErrNotFound},                     // crun: container `id` does not exist
		{"is already in use", errdefs.ErrAlreadyExists},             // crun
		{"with given ID already exists", errdefs.ErrAlreadyExists},  // runc
		{"cannot exec in a stopped", errdefs.ErrFailedPrecondition}, // runc
		{"is not running", errdefs.ErrFailedPrecondition},           // crun
		{"process already finished", errdefs.ErrNotFound},           // runc
		{"container not running", errdefs.ErrFailedPrecondition},    // runc
		{"executable file not found", errdefs.ErrInvalidArgument},   // runc: the name is not in $PATH
		{"exec format error", errdefs.ErrInvalidArgument},           // a program for another architecture
		{"exec: no such file or directory", errdefs.ErrInvalidArgument},
	} {
		if strings.Contains(text, c.words) {
			return c.class
		}
	}
	return nil
}

var errNoTerminal = errors.New("runtime sent no terminal")
