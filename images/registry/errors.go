package registry

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

// UnavailablePrefix starts the text of an error when the registry is unreachable or broken. The
// kubelet compares it (evalCRIPullErr).
const UnavailablePrefix = "RegistryUnavailable: "

var errStalled = errors.New("the transfer stalled")

// Error is an error of a registry that may be shown: its text holds neither credentials nor query
// strings, which may be signed.
//
// Its classes (errors.Is): ErrNotFound; ErrUnauthenticated for 401; ErrPermissionDenied for 403;
// ErrResourceExhausted for 429 and a Retry-After that is too long; ErrDataLoss for an answer whose
// length is not the manifest's; the context's error if that ended the request. An unavailable
// registry has no class: the kubelet needs the bare text.
type Error struct {
	text        string
	class       error
	unavailable bool
}

// Error returns the text. If Unavailable, it starts with UnavailablePrefix.
func (e *Error) Error() string {
	if e.unavailable {
		return UnavailablePrefix + e.text
	}
	return e.text
}

// Unwrap returns the error's class, nil if it has none.
func (e *Error) Unwrap() error { return e.class }

// Unavailable reports whether the registry was unreachable, closed the connection, or answered with
// a 5xx status.
func (e *Error) Unavailable() bool { return e.unavailable }

// IsUnavailable says whether an error is an Error that is Unavailable.
func IsUnavailable(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.unavailable
}

// Describe puts words in front of an error, after UnavailablePrefix.
func Describe(doing string, err error) error {
	if IsUnavailable(err) {
		text := strings.ReplaceAll(err.Error(), UnavailablePrefix, "")
		return &Error{text: doing + ": " + text, unavailable: true}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// wrap turns an error of the transport or of containerd's resolver into an
// Error. Of the original only the class is reachable from it.
func (r *Repository) wrap(ctx context.Context, doing string, err error) error {
	if done, ok := errors.AsType[*Error](err); ok {
		return done
	}
	cause := context.Cause(ctx)
	if cause != nil && !errors.Is(cause, errStalled) {
		return &Error{text: doing + ": " + cause.Error(), class: cause}
	}
	if cause != nil {
		err = cause
	}
	e := &Error{text: doing + ": " + explain(err)}
	if tried, ok := errors.AsType[*triedError](err); ok {
		e.text += fmt.Sprintf(" (asked %d times)", tried.times)
	}
	e.class, e.unavailable = classify(err)
	r.mu.Lock()
	secrets := slices.Clone(r.secrets)
	r.mu.Unlock()
	e.text = redact(e.text, secrets)
	return e
}

func classify(err error) (class error, unavailable bool) {
	if code, ok := statusOf(err); ok {
		return classOfStatus(code)
	}
	for _, of := range []struct{ err, class error }{
		{errRefusedHere, errdefs.ErrPermissionDenied}, {errdefs.ErrDataLoss, errdefs.ErrDataLoss},
		{errdefs.ErrInvalidArgument, errdefs.ErrInvalidArgument}, {errdefs.ErrFailedPrecondition, errdefs.ErrFailedPrecondition},
		{docker.ErrInvalidAuthorization, errdefs.ErrUnauthenticated}, {errdefs.ErrNotFound, errdefs.ErrNotFound},
	} {
		if errors.Is(err, of.err) {
			return of.class, false
		}
	}
	return nil, isNetwork(err)
}

// statusError is an answer with an unexpected status.
type statusError struct {
	code     int
	status   string // with the number
	host     string // the server that answered
	details  string // of the answer's body
	manifest string // for an answer about a manifest: the tag or digest that it was asked for by
	push     bool   // it is about a push
	again    bool   // it said when to try again
	wait     time.Duration
	most     time.Duration // set once wait is longer than that
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("the registry answered %s", e.status)
	if e.details != "" {
		text += " (" + e.details + ")"
	}
	if e.most > 0 {
		return fmt.Sprintf("%s and asks to be left alone for %s, which is longer than the %s that is waited", text, e.wait.Round(time.Second), e.most)
	}
	switch e.code {
	case http.StatusUnauthorized:
		text += ": credentials are needed or were refused"
	case http.StatusForbidden:
		text += map[bool]string{false: ": it may not be pulled without credentials, or with these", true: ": these credentials may not push there"}[e.push]
	case http.StatusNotFound:
		if e.manifest != "" && !e.push {
			by := map[bool]string{false: "tag", true: "digest"}[strings.Contains(e.manifest, ":")]
			text = "the registry has no such repository or " + by + " (" + strings.TrimPrefix(text, "the registry ") + ")"
		}
	case http.StatusTooManyRequests:
		text += ": it is asked too often, wait before the next try or use credentials with a higher limit"
	}
	return text
}

// newStatusError reads what a body says in the form of the distribution specification.
func newStatusError(resp *http.Response) *statusError {
	_, manifest, _ := strings.Cut(resp.Request.URL.Path, "/manifests/")
	kind := resp.Header.Get("Content-Type")
	e := &statusError{code: resp.StatusCode, status: resp.Status, host: resp.Request.URL.Host, manifest: manifest}
	e.wait, e.again = retryAfter(resp.Header, time.Now())
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
	if err != nil {
		return e
	}
	if e.details = detailsOf(body); e.details == "" && (kind == "" || strings.HasPrefix(kind, "text/plain")) {
		e.details = strings.TrimSpace(string(body[:min(len(body), 200)]))
	}
	return e
}

// detailsOf is what the body of an answer says.
func detailsOf(body []byte) string {
	var details docker.Errors
	if json.Unmarshal(body, &details) != nil || len(details) == 0 {
		return ""
	}
	return details.Error()
}

// statusOf returns the status that an error is about, a registry's or a token server's.
func statusOf(err error) (int, bool) {
	if own, ok := errors.AsType[*statusError](err); ok {
		return own.code, true
	}
	if theirs, ok := errors.AsType[remoteerrors.ErrUnexpectedStatus](err); ok {
		return theirs.StatusCode, true
	}
	return 0, false
}

// mayPass reports whether the same request may succeed a little later.
func mayPass(err error) bool {
	if code, ok := statusOf(err); ok {
		switch code {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
			http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	return isNetwork(err)
}

// isDial reports whether connecting failed.
func isDial(err error) bool {
	var dns *net.DNSError
	var op *net.OpError
	return errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial"
}

func classOfStatus(code int) (class error, unavailable bool) {
	return map[int]error{
		http.StatusUnauthorized: errdefs.ErrUnauthenticated, http.StatusForbidden: errdefs.ErrPermissionDenied,
		http.StatusNotFound: errdefs.ErrNotFound, http.StatusTooManyRequests: errdefs.ErrResourceExhausted,
	}[code], code >= 500
}

// isNetwork reports whether an error says that the server is unreachable or closed the connection.
// A certificate that does not verify is not such an error.
func isNetwork(err error) bool {
	// Of net/http's errors some have a text alone.
	text := func(s string) bool { return err != nil && strings.Contains(err.Error(), s) }
	var op *net.OpError
	var timeout net.Error
	switch {
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return false
	case errors.Is(err, errStalled), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.As(err, new(*net.DNSError)),
		text("http2: "), text("stream error: stream ID "), text("http: server closed idle connection"):
		return true
	case errors.As(err, &op):
		return op.Op != "remote error" // a TLS alert is an answer
	case errors.As(err, &timeout):
		return timeout.Timeout()
	}
	return false
}

// explain shortens texts of containerd and net/http.
func explain(err error) string {
	var refused *refusedError
	var own *statusError
	var theirs remoteerrors.ErrUnexpectedStatus
	switch {
	case errors.As(err, &refused):
		return refused.Error()
	case errors.As(err, &own):
		return own.Error()
	case errors.As(err, &theirs):
		e := statusError{code: theirs.StatusCode, status: theirs.Status, details: detailsOf(theirs.Body)}
		return strings.Replace(e.Error(), "the registry", "the token server", 1)
	case errors.Is(err, http.ErrSchemeMismatch):
		return err.Error() + " (images.insecure_registries names registries without TLS)"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return err.Error() + " (images.hosts_dir has the authorities of registries)"
	}
	return err.Error()
}

var urls = regexp.MustCompile(`https?://[^\s"'<>]+`)

// redact takes query strings, user information and secrets out of a text and makes one line of it,
// in which what a terminal would obey is escaped.
func redact(text string, secrets []string) string {
	text = urls.ReplaceAllStringFunc(text, func(s string) string {
		tail := ""
		for strings.HasSuffix(s, ":") || strings.HasSuffix(s, ",") || strings.HasSuffix(s, ")") {
			s, tail = s[:len(s)-1], s[len(s)-1:]+tail
		}
		u, err := url.Parse(s)
		if err != nil {
			return "(address)" + tail
		}
		u.RawQuery, u.Fragment, u.User = "", "", nil
		return u.String() + tail
	})
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, "***")
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	var out strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) {
			fmt.Fprintf(&out, "\\x%02x", r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// quiet discards containerd's own log lines, which quote requests and answers: what matters is
// returned as an error.
func quiet(ctx context.Context) context.Context {
	silent := logrus.New()
	silent.SetOutput(io.Discard)
	silent.SetLevel(logrus.PanicLevel)
	return log.WithLogger(ctx, logrus.NewEntry(silent))
}
