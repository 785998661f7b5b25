package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// texts takes note of every text for people that a node answers with and that is worded badly.
type texts struct {
	mu    sync.Mutex
	bad   []string
	named []string // ids of pods and containers that were made, and have names
}

// classWords are those of the classes that a code tells already.
var classWords = map[codes.Code]string{
	codes.InvalidArgument: "invalid argument", codes.FailedPrecondition: "failed precondition", codes.Unavailable: "unavailable",
	codes.Unimplemented: "not implemented", codes.ResourceExhausted: "resource exhausted", codes.OutOfRange: "out of range",
	codes.Aborted: "aborted", codes.DataLoss: "data loss", codes.Internal: "internal",
}

// Worded says what is wrong with the words of an error: a part of them that is there twice, or the
// class at the end, which the code tells. nil if nothing is.
func Worded(code codes.Code, text string) error {
	for line := range strings.Lines(text) {
		parts := strings.Split(strings.TrimSpace(line), ": ")
		for i, part := range parts {
			if slices.Contains(parts[:i], part) {
				return fmt.Errorf("%q is there twice", part)
			}
			if s := subject(part); s != "" && slices.ContainsFunc(parts[:i], func(p string) bool { return subject(p) == s }) {
				return fmt.Errorf("it is twice about %s", s)
			}
		}
		if words := classWords[code]; words != "" && len(parts) > 1 && parts[len(parts)-1] == words {
			return fmt.Errorf("the class is at the end")
		}
	}
	if strings.TrimSpace(text) == "" {
		return fmt.Errorf("it is empty")
	}
	return nil
}

// subject is what a part of a text is about: the quoted name that it ends with.
func subject(part string) string {
	if !strings.HasSuffix(part, `"`) {
		return ""
	}
	return part[max(strings.LastIndexByte(part[:len(part)-1], '"'), 0):]
}

func (t *texts) hear(where string, code codes.Code, text string) {
	if err := errors.Join(Worded(code, text), t.unnamed(code, text)); err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.bad = append(t.bad, fmt.Sprintf("%s: %v: %s: %s", where, err, code, text))
	}
}

// name notes the id of what has a name.
func (t *texts) name(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id != "" {
		t.named = append(t.named, id)
	}
}

// unnamed says of a text whose subject exists that it has an id where people have a name. Those of
// what is removed, and of who has a name that is wanted, are all that is known.
func (t *texts) unnamed(code codes.Code, text string) error {
	if code == codes.NotFound || code == codes.AlreadyExists {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range t.named {
		for _, noun := range []string{"container", "sandbox", "pod"} { // a path has ids too
			if strings.Contains(text, noun+" "+strconv.Quote(id)) {
				return fmt.Errorf("it calls a %s by its id", noun)
			}
		}
	}
	return nil
}

// intercept hears the errors of requests, and the message of a container that failed to start.
func (t *texts) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, options...)
	switch r := reply.(type) {
	case *runtime.RunPodSandboxResponse:
		t.name(r.GetPodSandboxId())
	case *runtime.CreateContainerResponse:
		t.name(r.GetContainerId())
	}
	if ctx.Err() == nil && err != nil { // otherwise the client itself may have made it
		t.hear(method, status.Code(err), status.Convert(err).Message())
	}
	if r, ok := reply.(*runtime.ContainerStatusResponse); ok && err == nil && r.GetStatus().GetReason() == "StartError" {
		t.hear("message of a container", codes.InvalidArgument, r.GetStatus().GetMessage())
	}
	return err
}

// wording is an error if the node has answered or logged something that is worded badly.
func (n *Node) wording() error {
	n.texts.mu.Lock()
	defer n.texts.mu.Unlock()
	bad := slices.Clone(n.texts.bad)
	log, err := os.ReadFile(n.LogFile)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(log)) {
		_, quoted, found := strings.Cut(line, " error=")
		if !found {
			continue
		}
		text := quoted
		if prefix, err := strconv.QuotedPrefix(quoted); err == nil {
			if text, err = strconv.Unquote(prefix); err != nil {
				return err
			}
		}
		if err := Worded(codes.Unknown, text); err != nil {
			bad = append(bad, fmt.Sprintf("log: %v: %s", err, line))
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d texts are worded badly:\n%s", len(bad), strings.Join(bad, "\n"))
	}
	return nil
}
