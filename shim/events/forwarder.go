package events

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sunaba-project/sunaba/shim/message"
)

// eventsService is containerd's.
const eventsService = "containerd.services.events.ttrpc.v1.Events"

// How hard the publisher tries: containerd may be restarting.
const (
	publishTries   = 6
	publishPause   = time.Second // before the second try; one more each time
	publishTimeout = 5 * time.Second
	publishQueue   = 2048 // events kept while containerd does not answer
)

// envelope is an event on its way, encoded as a ForwardRequest.
type envelope struct {
	topic   string
	request []byte
}

// Forwarder forwards events to containerd's ttrpc events service, in order.
type Forwarder struct {
	address   string
	namespace string
	log       *slog.Logger

	mu      sync.Mutex
	queue   []envelope
	working bool
	client  *ttrpc.Client
	idle    sync.WaitGroup
}

// NewForwarder makes a forwarder to a ttrpc socket ("unix:///path" or a path). It connects when it
// has something to say.
func NewForwarder(address, namespace string, log *slog.Logger) *Forwarder {
	return &Forwarder{address: strings.TrimPrefix(address, "unix://"), namespace: namespace, log: log}
}

// Publish hands on one event without waiting.
func (f *Forwarder) Publish(event Event) {
	value := &message.Any{TypeURL: event.Name, Value: event.Value}
	request := message.Fields(message.Fields[any](message.At(time.Now()), f.namespace, event.Topic, value))
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == publishQueue {
		f.log.Error("event dropped: containerd accepts none", "topic", f.queue[0].topic)
		f.queue = f.queue[1:]
	}
	f.queue = append(f.queue, envelope{event.Topic, request})
	if !f.working {
		f.working = true
		f.idle.Add(1)
		go f.work()
	}
}

// Close forwards what is still queued, for at most a few seconds, and disconnects.
func (f *Forwarder) Close() {
	done := make(chan struct{})
	go func() { f.idle.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(publishTimeout):
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disconnect()
}

// disconnect closes the connection, if there is one. The caller holds the lock.
func (f *Forwarder) disconnect() {
	if f.client != nil {
		f.client.Close()
		f.client = nil
	}
}

// work forwards until nothing is queued; there is no goroutine while nothing happens.
func (f *Forwarder) work() {
	defer f.idle.Done()
	for {
		f.mu.Lock()
		if len(f.queue) == 0 {
			f.working, f.queue = false, nil
			f.disconnect() // a connection costs memory on both sides
			f.mu.Unlock()
			return
		}
		e := f.queue[0]
		f.queue = f.queue[1:]
		f.mu.Unlock()
		f.forward(e)
	}
}

// forward delivers one event before the next one's turn.
func (f *Forwarder) forward(e envelope) {
	var err error
	for try := range publishTries {
		if try > 0 {
			time.Sleep(time.Duration(try) * publishPause)
		}
		if err = f.send(e); err == nil {
			return
		}
	}
	f.log.Error("failed to publish event, it is dropped", "topic", e.topic, "error", err)
}

func (f *Forwarder) send(e envelope) error {
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	client, err := f.connect(ctx)
	if err != nil {
		return err
	}
	err = client.Call(ctx, eventsService, "Forward", message.Wrap(e.request), &emptypb.Empty{})
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.disconnect()
	}
	return err
}

func (f *Forwarder) connect(ctx context.Context) (*ttrpc.Client, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.client != nil {
		return f.client, nil
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", f.address)
	if err != nil {
		return nil, fmt.Errorf("connect to containerd: %w", err)
	}
	f.client = ttrpc.NewClient(conn)
	return f.client, nil
}
