package shim

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sunaba-project/sunaba/shim/encode"
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
	request encode.Message
}

// EventPublisher forwards events to containerd's ttrpc events service, in order.
type EventPublisher struct {
	address   string
	namespace string
	log       *slog.Logger

	mu      sync.Mutex
	queue   []envelope
	working bool
	client  *ttrpc.Client
	idle    sync.WaitGroup
}

// NewEventPublisher makes a publisher to a ttrpc socket ("unix:///path" or a path). It connects when it has something to say.
func NewEventPublisher(address, namespace string, log *slog.Logger) *EventPublisher {
	return &EventPublisher{address: strings.TrimPrefix(address, "unix://"), namespace: namespace, log: log}
}

// Publish implements Publisher.
func (p *EventPublisher) Publish(event Event) {
	var e, request encode.Message
	e.Time(1, time.Now())
	e.Text(2, p.namespace)
	e.Text(3, event.Topic)
	e.Message(4, event.any())
	request.Message(1, e)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == publishQueue {
		p.log.Error("event dropped: containerd accepts none", "topic", p.queue[0].topic)
		p.queue = p.queue[1:]
	}
	p.queue = append(p.queue, envelope{event.Topic, request})
	if !p.working {
		p.working = true
		p.idle.Add(1)
		go p.work()
	}
}

// Close forwards what is still queued, for at most a few seconds, and disconnects.
func (p *EventPublisher) Close() {
	done := make(chan struct{})
	go func() { p.idle.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(publishTimeout):
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disconnect()
}

// disconnect closes the connection, if there is one. The caller holds the lock.
func (p *EventPublisher) disconnect() {
	if p.client != nil {
		p.client.Close()
		p.client = nil
	}
}

// work forwards until nothing is queued; there is no goroutine while nothing happens.
func (p *EventPublisher) work() {
	defer p.idle.Done()
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			p.working, p.queue = false, nil
			p.disconnect() // a connection costs memory on both sides
			p.mu.Unlock()
			return
		}
		e := p.queue[0]
		p.queue = p.queue[1:]
		p.mu.Unlock()
		p.forward(e)
	}
}

// forward delivers one event before the next one's turn.
func (p *EventPublisher) forward(e envelope) {
	var err error
	for try := range publishTries {
		if try > 0 {
			time.Sleep(time.Duration(try) * publishPause)
		}
		if err = p.send(e); err == nil {
			return
		}
	}
	p.log.Error("failed to publish event, it is dropped", "topic", e.topic, "error", err)
}

func (p *EventPublisher) send(e envelope) error {
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	client, err := p.connect(ctx)
	if err != nil {
		return err
	}
	request := &emptypb.Empty{} // whatever it does not know it sends as it is
	request.ProtoReflect().SetUnknown(protoreflect.RawFields(e.request))
	err = client.Call(ctx, eventsService, "Forward", request, &emptypb.Empty{})
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		client.Close()
		if p.client == client {
			p.client = nil
		}
	}
	return err
}

func (p *EventPublisher) connect(ctx context.Context) (*ttrpc.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client != nil {
		return p.client, nil
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", p.address)
	if err != nil {
		return nil, fmt.Errorf("connect to containerd: %w", err)
	}
	p.client = ttrpc.NewClient(conn)
	return p.client, nil
}
