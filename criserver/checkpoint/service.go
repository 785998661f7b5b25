package checkpoint

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/sunaba-project/sunaba/criserver/container"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/spec/facts"
	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/images"
)

// Options configure New.
type Options struct {
	Sandboxes  *sandbox.Manager
	Containers *container.Manager
	Images     *images.Service
	// Dir is the folder in which checkpoints are made and laid out. New deletes what a server that
	// died left there.
	Dir string
	// Limit bounds what a checkpoint is laid out to, in bytes.
	Limit int64
	// RestoreImages lets containers start from images whose annotation says that they were made of
	// a checkpoint: who writes the image then chooses the state of the processes.
	RestoreImages bool
	Logger        *slog.Logger
}

// Service makes checkpoints of containers, and containers of checkpoints.
type Service struct {
	o     Options
	paths facts.Paths
}

// New returns a service with an empty folder.
func New(o Options) (*Service, error) {
	if err := errors.Join(space.Empty(o.Dir), os.MkdirAll(o.Dir, 0o700)); err != nil {
		return nil, fmt.Errorf("create folder of checkpoints: %w", err)
	}
	return &Service{o: o}, nil
}

// remove removes a folder that holds the memory of processes. After an error, as of a disk that is
// read-only for a while, that is repeated until it succeeds.
func remove(dir string) error {
	err := os.RemoveAll(dir)
	if err != nil {
		go func() {
			for os.RemoveAll(dir) != nil {
				time.Sleep(5 * time.Second)
			}
		}()
	}
	return err
}
