package registry

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/containerd/containerd/v2/core/remotes/docker"

	"github.com/sunaba-project/sunaba/images/registry/credentials"
)

// Fingerprint tells the credentials given to Client.Repository apart from others for the same
// registry, without giving them away to who does not know the salt. It is "" without any.
func (r *Repository) Fingerprint(salt []byte) string {
	for _, l := range r.logins {
		if l.Given {
			h := hmac.New(sha256.New, salt)
			for _, part := range []string{credentials.CanonicalServer(r.domain), l.User, l.Secret, l.Bearer} {
				fmt.Fprintf(h, "%d:%s,", len(part), part)
			}
			return hex.EncodeToString(h.Sum(nil))
		}
	}
	return ""
}

// authorizer keeps credentials with the server they are for, and gives up after
// one refusal. The token protocol is containerd's.
type authorizer struct {
	endpoint *endpoint
	login    credentials.Login
	asked    atomic.Bool // the credentials have been asked for, or sent

	mu    sync.Mutex
	inner docker.Authorizer
}

func newAuthorizer(e *endpoint, l credentials.Login) *authorizer {
	a := &authorizer{endpoint: e, login: l}
	a.reset()
	a.asked.Store(l.Bearer != "")
	return a
}

// reset forgets tokens and failures to get one.
func (a *authorizer) reset() {
	inner := docker.NewDockerAuthorizer(
		docker.WithAuthClient(a.endpoint.tokens),
		docker.WithAuthHeader(http.Header{"User-Agent": {userAgent}}),
		docker.WithAuthCreds(func(asking string) (string, string, error) {
			if asking != a.endpoint.Host {
				return "", "", nil
			}
			return a.login.User, a.login.Secret, nil
		}),
	)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inner = inner
}

func (a *authorizer) current() docker.Authorizer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inner
}

// authorize sets the header of a request to the authorizer's own server.
func (a *authorizer) authorize(ctx context.Context, req *http.Request) error {
	if a.login.Bearer != "" {
		req.Header.Set("Authorization", "Bearer "+a.login.Bearer)
		return nil
	}
	err := a.current().Authorize(quiet(ctx), req)
	if err != nil {
		a.reset() // it would answer the same error for ever
	}
	return err
}

// challenge learns from a 401 of the authorizer's own server. The second one for the same request,
// or any one for a token that was given to us, means that the credentials are refused.
func (a *authorizer) challenge(ctx context.Context, responses []*http.Response) error {
	a.asked.Store(true)
	refused := &refusedError{a}
	if a.login.Bearer != "" || len(responses) > 1 {
		return fmt.Errorf("%w: %w", docker.ErrInvalidAuthorization, refused)
	}
	if responses[0].Request.Header.Get("Authorization") != "" {
		a.reset() // a token has run out; not every registry says so
	}
	err := a.current().AddResponses(quiet(ctx), responses)
	if errors.Is(err, docker.ErrInvalidAuthorization) {
		err = fmt.Errorf("%w: %w", err, refused)
	}
	return err
}

// refusedError says that a server did not accept the credentials, or the lack of them.
type refusedError struct{ by *authorizer }

func (e *refusedError) Error() string {
	who := "the registry"
	if !e.by.endpoint.Primary {
		who = e.by.endpoint.Host
	}
	if e.by.login == (credentials.Login{}) {
		return who + " has no such repository, or wants credentials, and none are known for it"
	}
	return who + " refused the credentials"
}

var errRefusedHere = errors.New("refused to send the credentials")
