package wasihttp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

const (
	out     = 0x100  // where functions of a caller return what they return in memory
	lists   = 0x1000 // where the test's lists are
	version = "@0.2.12"
	types   = "http/types#"
	output  = "io/streams#[method]output-stream."
	input   = "io/streams#[method]input-stream."
)

// others are the functions beside wasi:http that tests call.
var others = []wasitest.Lowered{
	{Module: "wasi:io/streams", Name: "[method]input-stream.read", Params: "iIi"},
	{Module: "wasi:io/streams", Name: "[method]input-stream.blocking-read", Params: "iIi"},
	{Module: "wasi:io/streams", Name: "[method]input-stream.subscribe", Params: "i", Results: "i"},
	{Module: "wasi:io/streams", Name: "[resource-drop]input-stream", Params: "i"},
	{Module: "wasi:io/streams", Name: "[method]output-stream.check-write", Params: "ii"},
	{Module: "wasi:io/streams", Name: "[method]output-stream.write", Params: "iiii"},
	{Module: "wasi:io/streams", Name: "[method]output-stream.blocking-write-and-flush", Params: "iiii"},
	{Module: "wasi:io/streams", Name: "[method]output-stream.blocking-flush", Params: "ii"},
	{Module: "wasi:io/streams", Name: "[method]output-stream.subscribe", Params: "i", Results: "i"},
	{Module: "wasi:io/streams", Name: "[resource-drop]output-stream", Params: "i"},
	{Module: "wasi:io/poll", Name: "[method]pollable.block", Params: "i"},
	{Module: "wasi:io/poll", Name: "[method]pollable.ready", Params: "i", Results: "i"},
	{Module: "wasi:io/poll", Name: "[resource-drop]pollable", Params: "i"},
	{Module: "wasi:io/error", Name: "[resource-drop]error", Params: "i"},
	{Module: "wasi:clocks/monotonic-clock", Name: "subscribe-duration", Params: "I", Results: "i"},
}

// functions are those of the text of the specification.
func functions(t testing.TB) (all []wasitest.Lowered) {
	t.Helper()
	text, err := os.ReadFile("testdata/http.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); fields[0] != "#" {
			all = append(all, wasitest.Lowered{Module: fields[0], Name: fields[1], Params: strings.Trim(fields[2], "-"), Results: strings.Trim(fields[3], "-")})
		}
	}
	return all
}

// caller makes guests that call what a test says.
type caller struct {
	testing.TB
	host     *wasip2.Host
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	client   *Client
}

func newCaller(t testing.TB) *caller {
	t.Helper()
	c := &caller{TB: t}
	var err error
	if c.host, err = wasip2.New(wasip2.Config{Stdin: -1, Stdout: -1, Stderr: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.host.Close() })
	var lowered []wasitest.Lowered
	var imports []canonical.Import
	for _, f := range append(functions(t), others...) {
		f.Module += version
		lowered = append(lowered, f)
		imports = append(imports, canonical.Import{Module: f.Module, Name: f.Name, Options: canonical.Options{Realloc: wasitest.ReallocName}})
	}
	ctx := context.Background()
	c.runtime = wasitest.Runtime(ctx)
	t.Cleanup(func() { c.runtime.Close(ctx) })
	if err := canonical.Provide(ctx, c.runtime, imports, wasip2.World(), World()); err != nil {
		t.Fatal(err)
	}
	if c.compiled, err = c.runtime.CompileModule(ctx, wasitest.Component(lowered, 64)); err != nil {
		t.Fatal(err)
	}
	return c
}

// guest is an instance.
type guest struct {
	instance *wasip2.Instance
	ctx      context.Context
	mod      api.Module
	mem      api.Memory
	next     uint32 // where put writes

	first, last uint64 // of link: the first response, and the future of the last one
}

// guest makes one, which its user closes.
func (c *caller) guest() *guest {
	i, err := c.host.NewInstance()
	if err != nil {
		panic(err)
	}
	if c.client != nil {
		i.ABI().Extension = c.client
	}
	ctx := canonical.With(context.Background(), i.ABI())
	mod, err := c.runtime.InstantiateModule(ctx, c.compiled, wazero.NewModuleConfig().WithName(""))
	if err != nil {
		panic(err)
	}
	return &guest{instance: i, ctx: ctx, mod: mod, mem: mod.Memory(), next: lists}
}

func (g *guest) close() {
	g.instance.Close()
	g.mod.Close(context.Background())
}

// newGuest is a guest of a caller of its own.
func newGuest(t testing.TB) *guest {
	t.Helper()
	g := newCaller(t).guest()
	t.Cleanup(g.close)
	return g
}

// short makes the name of an export of "io/streams#flush".
func short(name string) string {
	iface, function, _ := strings.Cut(name, "#")
	return "wasi:" + iface + version + "#" + function
}

// try calls a function.
func (g *guest) try(name string, params ...uint64) (uint64, error) {
	f := g.mod.ExportedFunction(short(name))
	if f == nil {
		panic("no function " + name)
	}
	results, err := f.Call(g.ctx, params...)
	if err != nil || len(results) == 0 {
		return 0, err
	}
	return uint64(api.DecodeU32(results[0])), nil // the other half is garbage
}

// do calls a function that does not trap. It panics if it does: a guest's goroutine is not the
// test's.
func (g *guest) do(name string, params ...uint64) uint64 {
	v, err := g.try(name, params...)
	if err != nil {
		panic(fmt.Errorf("%s%v: %w", name, params, err))
	}
	return v
}

// trap calls a function that does, with a text in it.
func (g *guest) trap(t testing.TB, want, name string, params ...uint64) {
	t.Helper()
	_, err := g.try(name, params...)
	var trap *canonical.Trap
	if !errors.As(err, &trap) || !strings.Contains(trap.Text, want) || trap.Import != short(name) {
		t.Errorf("%s%v: got %v, want a trap with %q", name, params, err, want)
	}
}

// own calls a function that returns result<own>, and returns the handle, or 0 for an error.
func (g *guest) own(name string, params ...uint64) uint64 {
	g.do(name, append(params, out)...)
	if g.u8(out) != 0 {
		return 0
	}
	return uint64(g.u32(out + 4))
}

// put writes a string and returns the two parameters that name it.
func (g *guest) put(s string) (uint64, uint64) {
	if g.next+uint32(len(s))+64 > 0x20000 {
		g.next = lists
	}
	at := g.next
	g.mem.WriteString(at, s)
	g.next += (uint32(len(s)) + 7) &^ 7
	return uint64(at), uint64(len(s))
}

// list writes a list of strings, and returns the two parameters that name it; size is how many
// strings each element has.
func (g *guest) list(size int, strings ...string) (uint64, uint64) {
	var b []byte
	for _, s := range strings {
		at, n := g.put(s)
		b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, uint32(at)), uint32(n))
	}
	at, _ := g.put(string(b))
	return at, uint64(len(strings) / size)
}

func (g *guest) u8(at uint32) uint8   { v, _ := g.mem.ReadByte(at); return v }
func (g *guest) u32(at uint32) uint32 { v, _ := g.mem.ReadUint32Le(at); return v }

// text is a string, or a list of bytes.
func (g *guest) text(at uint32) string {
	b, ok := g.mem.Read(g.u32(at), g.u32(at+4))
	if !ok {
		panic("a string is out of bounds")
	}
	return string(b)
}

// option is an option<string>.
func (g *guest) option(name string, params ...uint64) string {
	g.do(name, append(params, out)...)
	if g.u8(out) == 0 {
		return "-"
	}
	return g.text(out + 4)
}

// fields makes fields of names and values.
func (g *guest) fields(pairs ...string) uint64 {
	at, n := g.list(2, pairs...)
	return g.own(types+"[static]fields.from-list", at, n)
}

// entries are the entries of fields.
func (g *guest) entries(fields uint64) (all []string) {
	g.do(types+"[method]fields.entries", fields, out)
	for i := range g.u32(out + 4) {
		at := g.u32(out) + 16*i
		all = append(all, g.text(at)+": "+g.text(at+8))
	}
	return all
}

// respond answers a request, and returns the outgoing-body.
func (g *guest) respond(to uint64, status int, headers ...string) uint64 {
	response := g.do(types+"[constructor]outgoing-response", g.fields(headers...))
	if g.do(types+"[method]outgoing-response.set-status-code", response, uint64(status)) != 0 {
		panic("the status is refused")
	}
	body := g.own(types+"[method]outgoing-response.body", response)
	g.do(types+"[static]response-outparam.set", to, 0, response, 0, 0, 0, 0, 0, 0)
	return body
}

// write writes a whole string to an output-stream, and reports whether it could.
func (g *guest) write(stream uint64, s string) bool {
	for ; len(s) > 0; s = s[min(len(s), 4096):] {
		at, n := g.put(s[:min(len(s), 4096)])
		if g.do(output+"blocking-write-and-flush", stream, at, n, out); g.u8(out) != 0 {
			return false
		}
	}
	return true
}

// finish drops the stream of an outgoing-body, 0 for none, and finishes it, with trailers or
// without. It reports whether that succeeded.
func (g *guest) finish(body, stream uint64, trailers ...string) bool {
	if stream != 0 {
		g.do("io/streams#[resource-drop]output-stream", stream)
	}
	some, handle := uint64(0), uint64(0)
	if len(trailers) > 0 {
		some, handle = 1, g.fields(trailers...)
	}
	g.do(types+"[static]outgoing-body.finish", body, some, handle, out)
	return g.u8(out) == 0
}

// say writes a whole body.
func (g *guest) say(body uint64, s string) {
	stream := g.own(types+"[method]outgoing-body.write", body)
	g.write(stream, s)
	g.finish(body, stream)
}

// readAll reads an input-stream to its end, and says how it has ended.
func (g *guest) readAll(stream uint64) (string, string) {
	var all bytes.Buffer
	for {
		if g.do(input+"blocking-read", stream, 1<<20, out); g.u8(out) == 0 {
			all.WriteString(g.text(out + 4))
			continue
		}
		if g.u8(out+4) == 1 {
			return all.String(), "closed"
		}
		failed := uint64(g.u32(out + 8))
		g.do(types+"http-error-code", failed, out)
		end := "no code"
		if g.u8(out) == 1 {
			end = Case(g.u8(out + 8)).String()
		}
		g.do("io/error#[resource-drop]error", failed)
		return all.String(), end
	}
}

// await waits for what a subscribe function tells of.
func (g *guest) await(subscribe string, handle uint64) {
	pollable := g.do(subscribe, handle)
	g.do("io/poll#[method]pollable.block", pollable)
	g.do("io/poll#[resource-drop]pollable", pollable)
}

// trailers waits for the trailers of an incoming-body whose stream was dropped: their entries, or
// how it has ended.
func (g *guest) trailers(body uint64) []string {
	future := g.do(types+"[static]incoming-body.finish", body)
	defer func() { g.do(types+"[resource-drop]future-trailers", future) }()
	g.await(types+"[method]future-trailers.subscribe", future)
	g.do(types+"[method]future-trailers.get", future, out)
	switch {
	case g.u8(out) != 1 || g.u8(out+8) != 0:
		return []string{"not there"}
	case g.u8(out+16) == 1:
		return []string{Case(g.u8(out + 24)).String()}
	case g.u8(out+24) == 0:
		return nil
	}
	return g.entries(uint64(g.u32(out + 28)))
}

// played is a guest that a function of the test plays, once for each request.
type played struct {
	*caller
	play func(g *guest, request, to uint64)
	busy chan struct{} // full: ErrBusy
}

func (p *played) Take(context.Context, time.Time) (Guest, error) {
	if p.busy != nil {
		select {
		case p.busy <- struct{}{}:
		default:
			return nil, ErrBusy
		}
	}
	return &lent{p.guest(), p}, nil
}

type lent struct {
	*guest
	of *played
}

func (l *lent) Context() context.Context { return l.ctx }
func (l *lent) Stop(reason error)        { l.instance.End(reason) }

func (l *lent) Async() bool { return false }

func (l *lent) Handle(_ context.Context, handles ...uint64) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = r.(error)
		}
	}()
	l.of.play(l.guest, handles[0], handles[1])
	return nil
}

func (l *lent) Release(error) {
	l.close()
	if l.of.busy != nil {
		<-l.of.busy
	}
}

// read reads a response.
func read(t testing.TB, response *http.Response, err error) (int, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return response.StatusCode, string(b) + " and " + err.Error()
	}
	return response.StatusCode, string(b)
}

const patience = time.Minute
