package wasm

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

// What takes long is told with its size, and its end too; what does not is not. What failed was not
// compiled.
func TestTellCompiling(t *testing.T) {
	var out bytes.Buffer
	var err error
	tellCompiling(&out, "app.wasm", 10<<20, times{first: time.Hour})(&err)
	if out.Len() > 0 {
		t.Errorf("told at once: %q", &out)
	}
	done := tellCompiling(&out, "a\x1bb.wasm", 10<<20, times{first: time.Millisecond, plain: 20 * time.Millisecond})
	time.Sleep(100 * time.Millisecond)
	done(&err)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	last := len(lines) - 1
	if last < 2 || !strings.HasPrefix(lines[0], `sunaba: compiling "a\x1bb.wasm" (10.0 MiB), `) || !strings.HasPrefix(lines[last], `sunaba: compiled "a\x1bb.wasm" (10.0 MiB) in `) {
		t.Errorf("told %q", lines)
	}
	out.Reset()
	done = tellCompiling(&out, "app.wasm", 10<<20, times{first: time.Millisecond, plain: time.Hour})
	time.Sleep(50 * time.Millisecond)
	err = context.Canceled
	if done(&err); strings.Contains(out.String(), "compiled") || !strings.Contains(out.String(), "compiling") {
		t.Errorf("told %q of what was cancelled", &out)
	}
	tellCompiling(nil, "app.wasm", 1, times{})(&err)
}
