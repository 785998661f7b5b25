package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	eventsapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sunaba-project/sunaba/shim/message"
)

// flaky is an events service that fails at first.
type flaky struct {
	mu     sync.Mutex
	fails  int
	topics []string
}

func (f *flaky) Forward(ctx context.Context, r *eventsapi.ForwardRequest) (*emptypb.Empty, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails > 0 {
		f.fails--
		return nil, errors.New("busy")
	}
	if age := time.Since(r.Envelope.Timestamp.AsTime()); r.Envelope.Namespace != "n" || age < 0 || age > time.Minute {
		return nil, fmt.Errorf("envelope %v", r.Envelope)
	}
	f.topics = append(f.topics, r.Envelope.Topic+" "+r.Envelope.Event.TypeUrl)
	return &emptypb.Empty{}, nil
}

func TestForwarderKeepsOrderOverFailures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	service := &flaky{fails: 1}
	eventsapi.RegisterTTRPCEventsService(server, service)
	go server.Serve(context.Background(), l)
	defer server.Close()
	p := NewForwarder("unix://"+path, "n", slog.New(slog.DiscardHandler))
	p.Publish(Create(&message.CreateTaskRequest{}, 0))
	p.Publish(Start("", 0))
	p.Publish(Exit("", "", 0, 0, time.Time{}))
	p.Close()
	want := []string{"/tasks/create containerd.events.TaskCreate", "/tasks/start containerd.events.TaskStart", "/tasks/exit containerd.events.TaskExit"}
	if !slices.Equal(service.topics, want) {
		t.Errorf("events %q", service.topics)
	}
}
