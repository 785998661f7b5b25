package wasip1

import (
	"context"
	"os"
	"testing"
)

// bench measures a call of a host function through the engine.
func bench(b *testing.B, c *caller, name string, params ...uint64) {
	b.Helper()
	f := c.Mod.ExportedFunction(name)
	stack := make([]uint64, max(len(params), 1))
	ctx := context.Background()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		copy(stack, params)
		if err := f.CallWithStack(ctx, stack); err != nil || stack[0] != 0 {
			b.Fatal(err, stack[0])
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	c := newCaller(b, Config{Stdin: -1, Stdout: int(null.Fd()), Stderr: -1})
	p, n := c.Iovec(100)
	b.Run("one", func(b *testing.B) { bench(b, c, "fd_write", 1, p, n, atResult) })
	for i := range uint32(4) {
		c.Mem.WriteUint32Le(atIovecs+8*i, atData)
		c.Mem.WriteUint32Le(atIovecs+8*i+4, 100)
	}
	b.Run("four", func(b *testing.B) { bench(b, c, "fd_write", 1, atIovecs, 4, atResult) })
}

func BenchmarkRead(b *testing.B) {
	c := newCaller(b, Config{})
	c.put("f", "0123456789")
	fd := c.open("f", 0, rightsFile, 0)
	p, n := c.Iovec(100)
	b.Run("read", func(b *testing.B) { bench(b, c, "fd_read", fd, p, n, atResult) })
	b.Run("pread", func(b *testing.B) { bench(b, c, "fd_pread", fd, p, n, 0, atResult) })
}

func BenchmarkPoll(b *testing.B) {
	r, w, _ := os.Pipe()
	defer r.Close()
	defer w.Close()
	c := newCaller(b, Config{Stdin: int(r.Fd()), Stdout: int(w.Fd()), Stderr: -1})
	n := subscribe(c, sub{eventClock, clockMonotonic, 0, 0})
	b.Run("clock", func(b *testing.B) { bench(b, c, "poll_oneoff", atSubs, atEvents, n, atResult) })
	n = subscribe(c, sub{eventClock, clockMonotonic, 0, 0}, sub{eventRead, 0, 0, 0}, sub{eventWrite, 1, 0, 0})
	b.Run("pipes", func(b *testing.B) { bench(b, c, "poll_oneoff", atSubs, atEvents, n, atResult) })
	n = subscribe(c, sub{eventClock, clockMonotonic, 1000, 0}, sub{eventRead, 0, 0, 0})
	b.Run("microsecond", func(b *testing.B) { bench(b, c, "poll_oneoff", atSubs, atEvents, n, atResult) })
}

func BenchmarkClock(b *testing.B) {
	c := newCaller(b, Config{})
	b.Run("realtime", func(b *testing.B) { bench(b, c, "clock_time_get", 0, 0, atResult) })
	b.Run("monotonic", func(b *testing.B) { bench(b, c, "clock_time_get", 1, 0, atResult) })
}

func BenchmarkStat(b *testing.B) {
	c := newCaller(b, Config{})
	os.MkdirAll(c.root+"/a/b", 0o755)
	c.put("a/b/f", "")
	c.put("f", "")
	p, n := c.Str(atText, "f")
	q, m := c.Str(atText2, "a/b/f")
	b.Run("name", func(b *testing.B) { bench(b, c, "path_filestat_get", 3, 1, p, n, atData) })
	b.Run("path", func(b *testing.B) { bench(b, c, "path_filestat_get", 3, 1, q, m, atData) })
	b.Run("walk", func(b *testing.B) {
		c.host.system.Fallbacks.Walk = true
		bench(b, c, "path_filestat_get", 3, 1, q, m, atData)
	})
}
