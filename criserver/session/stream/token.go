package stream

import (
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

const (
	tokenLife  = time.Minute
	maxWaiting = 1000
)

// tokens are requests that wait for their client to connect. The zero value is empty.
type tokens struct {
	mu      sync.Mutex
	waiting map[string]ticket
}

type ticket struct {
	request any
	expires time.Time
}

// add keeps a request under a token that cannot be guessed.
func (t *tokens) add(request any) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for token, ticket := range t.waiting {
		if !now.Before(ticket.expires) {
			delete(t.waiting, token)
		}
	}
	if len(t.waiting) >= maxWaiting {
		return "", fmt.Errorf("%d clients have not connected yet: %w", maxWaiting, errdefs.ErrResourceExhausted)
	}
	if t.waiting == nil {
		t.waiting = map[string]ticket{}
	}
	token := rand.Text()
	t.waiting[token] = ticket{request, now.Add(tokenLife)}
	return token, nil
}

// take returns a token's request, once.
func (t *tokens) take(token string) (any, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ticket, ok := t.waiting[token]
	delete(t.waiting, token)
	return ticket.request, ok && time.Now().Before(ticket.expires)
}
