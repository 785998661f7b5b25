// Package errtext makes the text of an error that a person reads in an event, a status or a log.
package errtext

import (
	"errors"
	"strings"

	"github.com/containerd/errdefs"
)

// told are the classes whose words add nothing to a text: the gRPC code says them. "not found" and
// "already exists" are not among them, for they are what a text such as `container "id": not found`
// is about.
var told = []error{
	errdefs.ErrInvalidArgument, errdefs.ErrFailedPrecondition, errdefs.ErrUnavailable, errdefs.ErrNotImplemented,
	errdefs.ErrResourceExhausted, errdefs.ErrOutOfRange, errdefs.ErrAborted, errdefs.ErrDataLoss, errdefs.ErrInternal,
}

// longest is how many bytes of a text are kept: it may quote what a client has sent, which is up to
// 16 MiB.
const longest = 8 << 10

// Of is an error's text, without the words of its classes at the end of its lines.
func Of(err error) string {
	text := unclassed(err)
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}

func unclassed(err error) string {
	text := err.Error()
	var endings []string
	for _, class := range told {
		if errors.Is(err, class) {
			endings = append(endings, ": "+class.Error())
		}
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = subjectOnce(once(strip(line, endings), ": "+errdefs.ErrPermissionDenied.Error()))
	}
	return strings.Join(lines, "\n")
}

// subjectOnce drops a part that the one before it ends with: `update container "id": container
// "id": not found` names it twice, where the container was removed between two steps of a request.
func subjectOnce(line string) string {
	parts := strings.Split(line, ": ")
	kept := parts[:1]
	for _, part := range parts[1:] {
		if last := kept[len(kept)-1]; strings.HasSuffix(part, `"`) && strings.HasSuffix(last, " "+part) {
			continue
		}
		kept = append(kept, part)
	}
	return strings.Join(kept, ": ")
}

// once cuts an ending that the line has twice, however it is written the first time. It is the
// kernel's word too, which alone says why.
func once(line, ending string) string {
	if at := len(line) - 2*len(ending); at > 0 && strings.EqualFold(line[at:], ending+ending) {
		return line[:len(line)-len(ending)]
	}
	return line
}

func strip(line string, endings []string) string {
	for _, e := range endings {
		if rest, ok := strings.CutSuffix(line, e); ok && rest != "" {
			return strip(rest, endings)
		}
	}
	return line
}
