package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

func logLevels() []string  { return []string{"debug", "info", "warn", "error"} }
func logFormats() []string { return []string{"text", "json"} }

// newLogger returns the logger that every part is given.
func newLogger(w io.Writer, c logConfig) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, fmt.Errorf("log level is %q, not one of %s", c.Level, strings.Join(logLevels(), ", "))
	}
	options := &slog.HandlerOptions{Level: level}
	switch c.Format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("log format is %q, not one of %s", c.Format, strings.Join(logFormats(), ", "))
}

// takeOverLibraries sends what containerd's packages log, which use the standard logger of logrus,
// the same way as everything else, one level lower: a library's warning is no reason for a person
// to act. What Kubernetes' streaming packages log by klog is about a client's connection, which the
// client is told; it is for debugging.
func takeOverLibraries(logger *slog.Logger) {
	std := logrus.StandardLogger()
	std.SetOutput(io.Discard)
	std.ReplaceHooks(logrus.LevelHooks{})
	std.AddHook(librarian{logger})
	klog.SetSlogLogger(slog.New(whisper{logger.Handler()}))
}

// whisper is a handler that takes everything at debug level.
type whisper struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h whisper) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle implements slog.Handler. klog passes errors on without asking Enabled.
func (h whisper) Handle(ctx context.Context, r slog.Record) error {
	if !h.Enabled(ctx, r.Level) {
		return nil
	}
	r.Level = slog.LevelDebug
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h whisper) WithAttrs(attrs []slog.Attr) slog.Handler {
	return whisper{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h whisper) WithGroup(name string) slog.Handler { return whisper{h.Handler.WithGroup(name)} }

// lateAnswer is what ttrpc says when a call was answered that its caller had given up, as every
// wait for a container's end is when the container is removed first.
const lateAnswer = "ttrpc: received message on inactive stream"

// librarian is a logrus hook.
type librarian struct{ logger *slog.Logger }

func (librarian) Levels() []logrus.Level {
	return []logrus.Level{logrus.PanicLevel, logrus.FatalLevel, logrus.ErrorLevel, logrus.WarnLevel}
}

func (l librarian) Fire(e *logrus.Entry) error {
	level := slog.LevelWarn
	if e.Level == logrus.WarnLevel || e.Message == lateAnswer {
		level = slog.LevelDebug
	}
	attrs := make([]slog.Attr, 0, len(e.Data))
	for k, v := range e.Data {
		attrs = append(attrs, slog.Any(k, v))
	}
	l.logger.LogAttrs(context.Background(), level, e.Message, attrs...)
	return nil
}
