package gowasm

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain collects garbage less often: these tests rewrite and compile one function thousands of
// times, and nearly half of that was the collector's.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
