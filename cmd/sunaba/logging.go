package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
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
