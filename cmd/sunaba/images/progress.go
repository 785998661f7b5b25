package images

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/cmd/sunaba/units"
	"github.com/sunaba-project/sunaba/images"
)

// plainInterval is how often a line is written where there are no bars.
const plainInterval = 5 * time.Second

// Progress shows how far a pull or an import is: a bar for each layer on a
// terminal, else a line for each phase and now and then.
type Progress struct {
	out  io.Writer
	name string

	mu    sync.Mutex
	bars  *mpb.Progress // nil without any
	spin  *mpb.Bar      // while a module is compiled
	parts map[digest.Digest]*mpb.Bar
	phase string
	last  time.Time
}

// NewProgress shows progress on a writer.
func NewProgress(out io.Writer, name string) *Progress {
	p := &Progress{out: out, name: name, parts: map[digest.Digest]*mpb.Bar{}}
	if IsTerminal(out) {
		p.bars = mpb.New(mpb.WithOutput(out), mpb.WithWidth(40), mpb.WithRefreshRate(120*time.Millisecond))
	}
	return p
}

// IsTerminal says of a writer that it is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Show shows the progress as it is now.
func (p *Progress) Show(now images.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bars == nil {
		p.line(now)
		return
	}
	p.compiling(now)
	for _, part := range now.Parts {
		bar, ok := p.parts[part.Digest]
		if !ok {
			bar = p.bars.AddBar(max(part.Total, 1),
				mpb.PrependDecorators(decor.Name(shortID(part.Digest.String())+" ")),
				mpb.AppendDecorators(decor.OnComplete(decor.CountersKibiByte("% .1f / % .1f"), "done")))
			p.parts[part.Digest] = bar
		}
		if part.Done {
			bar.SetCurrent(max(part.Total, 1))
		} else { // a bar is complete once the layer is unpacked too
			bar.SetCurrent(min(part.Bytes, part.Total-1))
		}
	}
}

// compiling shows that a module is compiled, and for how long already.
func (p *Progress) compiling(now images.Progress) {
	switch {
	case now.Phase == "compile" && p.spin == nil:
		p.spin = p.bars.AddSpinner(1, mpb.PrependDecorators(decor.Name(compileName+" "+units.Bytes(now.Compiling)+" ")),
			mpb.AppendDecorators(decor.OnComplete(decor.Elapsed(decor.ET_STYLE_GO), "done")))
	case now.Phase != "compile" && p.spin != nil:
		p.spin.SetCurrent(1)
	}
}

// compileName is as wide as the short ids of layers.
const compileName = "compile     "

// line writes a line when the phase changes, and now and then.
func (p *Progress) line(now images.Progress) {
	if now.Phase == p.phase && time.Since(p.last) < plainInterval {
		return
	}
	p.phase, p.last = now.Phase, time.Now()
	switch now.Phase {
	case "push":
		fmt.Fprintf(p.out, "%s: %s, %d of %d blobs, %s of %s\n", p.name, now.Phase, now.LayersDone, now.Layers, units.Bytes(now.Bytes), units.Bytes(now.BytesTotal))
	case "fetch", "unpack":
		fmt.Fprintf(p.out, "%s: %s, %d of %d layers, %s of %s\n", p.name, now.Phase, now.LayersDone, now.Layers, units.Bytes(now.Bytes), units.Bytes(now.BytesTotal))
	case "compile":
		fmt.Fprintf(p.out, "%s: %s, %s\n", p.name, now.Phase, units.Bytes(now.Compiling))
	default:
		fmt.Fprintf(p.out, "%s: %s\n", p.name, now.Phase)
	}
}

// End ends the bars as they are.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bars == nil {
		return
	}
	for _, bar := range append(slices.Collect(maps.Values(p.parts)), p.spin) {
		if bar != nil && !bar.Completed() {
			bar.Abort(false)
		}
	}
	p.bars.Wait()
}
