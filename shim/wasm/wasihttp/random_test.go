package wasihttp

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/lull"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip3"
	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

// step is a function that random guests call: what its parameters and results are. A letter is a
// handle: F fields, R request, P response, O options, W set, s and S the readable and writable end
// of a stream, f and g of a future, 1 to 4 one of these that copies, d and D the ends of a future
// that are done; with "!" it is given away, or is noted anew by moved. b is a case of two, m a
// pointer, n a length, x where results are written. Results in memory are behind ">".
type step struct{ name, params, results string }

var steps = []step{
	{"[constructor]fields", "", "F"},
	{"[constructor]fields", "", "F"},
	{"[method]fields.append", "Fmnmnx", ""},
	{"[method]fields.copy-all", "Fx", ""},
	{"[method]fields.get-and-delete", "Fmnx", ""},
	{"[method]fields.clone", "F", "F"},
	{"[resource-drop]fields", "F!", ""},
	{"[static]request.new", "F!bs!f!bO!x", ">Rf"},
	{"[static]request.new", "F!bs!f!bO!x", ">Rf"},
	{"[method]request.get-headers", "R", "F"},
	{"[method]request.get-options", "Rx", ""},
	{"[method]request.set-authority", "Rbmn", ""},
	{"[method]request.set-scheme", "Rb0mn", ""},
	{"[static]request.consume-body", "R!f!x", ">sf"},
	{"[resource-drop]request", "R!", ""},
	{"[constructor]request-options", "", "O"},
	{"[static]response.new", "F!bs!f!x", ">Pf"},
	{"[static]response.new", "F!bs!f!x", ">Pf"},
	{"[method]response.get-headers", "P", "F"},
	{"[static]response.consume-body", "P!f!x", ">sf"},
	{"[method]response.set-status-code", "Pn", ""},
	{"[resource-drop]response", "P!", ""},
	{"[async-lower]send", "R!x", ""},
	{"stream.new:1.1.n", "", "sS"},
	{"stream.read:1.1.n:a", "s!mn", ""},
	{"stream.write:1.1.n:a", "S!mn", ""},
	{"stream.cancel-read:1.1.n:a", "1!", ""},
	{"stream.cancel-write:1.1.n:a", "2!", ""},
	{"stream.drop-readable:1.1.n", "s!", ""},
	{"stream.drop-writable:1.1.n", "S!", ""},
	{"future.new:40.8.v", "", "fg"},
	{"future.new:40.8.v", "", "fg"},
	{"future.read:40.8.v:a", "f!m", ""},
	{"future.write:40.8.v:a", "g!m", ""},
	{"future.cancel-read:40.8.v:a", "3!", ""},
	{"future.cancel-write:40.8.v:a", "4!", ""},
	{"future.drop-readable:40.8.v", "d!", ""},
	{"future.drop-readable:40.8.v", "f!", ""},
	{"future.drop-writable:40.8.v", "D!", ""},
	{"error-context.new", "mn", ""},
	{"waitable-set.new", "", "W"},
	{"waitable.join", "4W", ""},
	{"waitable-set.poll", "Wx", ""},
	{"thread.yield", "", ""},
	{"task.return:iiiIiiii", "0P!000000", ""},
}

// random is a guest whose calls a number chooses.
type random struct {
	*rand.Rand
	*guest
	handles map[byte][]uint64
}

// step chooses a function, mostly one for which there are handles.
func (r *random) step() step {
	for {
		s := steps[r.IntN(len(steps))]
		missing := strings.ContainsFunc(s.params, func(kind rune) bool {
			return strings.ContainsRune("FRPOWsSfg1234dD", kind) && len(r.handles[byte(kind)]) == 0
		})
		if !missing || r.IntN(300) == 0 {
			return s
		}
	}
}

// parameter chooses one.
func (r *random) parameter(kind byte, taken bool) uint64 {
	switch kind {
	case 'b':
		return r.Uint64N(2)
	case 'm':
		return lists + 64*r.Uint64N(8)
	case 'n':
		return r.Uint64N(200)
	case 'x':
		return out
	case '0':
		return 0
	}
	known := r.handles[kind]
	if len(known) == 0 || r.IntN(300) == 0 {
		return r.Uint64N(8)
	}
	at := r.IntN(len(known))
	handle := known[at]
	if taken {
		r.handles[kind] = append(known[:at], known[at+1:]...)
	}
	return handle
}

// call calls a function and notes the handles that it returns.
func (r *random) call(s step) error {
	var params []uint64
	for at := 0; at < len(s.params); at++ {
		taken := at+1 < len(s.params) && s.params[at+1] == '!'
		params = append(params, r.parameter(s.params[at], taken))
		if taken {
			at++
		}
	}
	handle := uint64(0)
	if len(params) > 0 {
		handle = params[0]
	}
	results, err := r.mod.ExportedFunction(exportOf(s.name)).Call(r.ctx, params...)
	if err != nil {
		return err
	}
	kinds, packed := s.results, uint64(0)
	if len(results) > 0 {
		packed = results[0]
	}
	if memory, found := strings.CutPrefix(kinds, ">"); found {
		kinds, packed = memory, uint64(r.u32(out))|uint64(r.u32(out+4))<<32
	}
	if strings.Contains(s.name, ".read:") || strings.Contains(s.name, ".write:") || strings.Contains(s.name, ".cancel-") {
		r.moved(s.params[0], handle, uint32(packed))
	}
	for _, kind := range []byte(kinds) {
		r.handles[kind] = append(r.handles[kind], uint64(uint32(packed)))
		packed >>= 32
	}
	return nil
}

// moved notes what an end is after a copy that began, or was cancelled, with this result.
func (r *random) moved(kind byte, handle uint64, result uint32) {
	copying := map[byte]byte{'s': '1', 'S': '2', 'f': '3', 'g': '4'}
	was, cancelled := map[byte]byte{'1': 's', '2': 'S', '3': 'f', '4': 'g'}[kind]
	if !cancelled {
		was = kind
	}
	to := was
	switch {
	case result == 0xffff_ffff:
		to = copying[was]
	case was == 'f' && result == 0:
		to = 'd'
	case was == 'g' && result < 2:
		to = 'D'
	case (was == 's' || was == 'S') && result&15 == 1:
		return // it is done
	}
	r.handles[to] = append(r.handles[to], handle)
}

// moduleOf is the module that a step's function is imported from.
func moduleOf(name string) string {
	switch {
	case name == "[async-lower]send":
		return "wasi:http/client@0.3.0"
	case name[0] == '[':
		return "wasi:http/types@0.3.0"
	}
	return canonical.BuiltIns
}

func exportOf(name string) string { return moduleOf(name) + "#" + name }

// newRandomCaller makes guests that call the functions of steps.
func newRandomCaller(t testing.TB) *caller {
	t.Helper()
	c := &caller{TB: t, client: NewClient(ClientConfig{Root: -1})}
	t.Cleanup(c.client.Close)
	var err error
	if c.host, err = wasip2.New(wasip2.Config{Stdin: -1, Stdout: -1, Stderr: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.host.Close() })
	var lowered []wasitest.Lowered
	var imports []canonical.Import
	seen := map[string]bool{}
	for _, s := range steps {
		if seen[s.name] {
			continue
		}
		seen[s.name] = true
		i := canonical.ParseImport(moduleOf(s.name), s.name)
		f, err := canonical.Find(i.Interface, i.Function, Service(), async.World())
		if err != nil {
			t.Fatal(err)
		}
		signature := f.Signature()
		if i.Options.Async {
			signature = f.AsyncSignature()
		}
		i.Options.Realloc = wasitest.ReallocName
		imports = append(imports, i)
		lowered = append(lowered, wasitest.Lowered{Module: i.Module, Name: s.name, Params: letters(signature.Params), Results: letters(signature.Results)})
	}
	ctx := context.Background()
	c.runtime = wasitest.Runtime(ctx)
	t.Cleanup(func() { c.runtime.Close(ctx) })
	if err := canonical.Provide(ctx, c.runtime, imports, wasip2.World(), wasip3.World(), Service(), async.World()); err != nil {
		t.Fatal(err)
	}
	if c.compiled, err = c.runtime.CompileModule(ctx, wasitest.Component(lowered, 64)); err != nil {
		t.Fatal(err)
	}
	return c
}

func letters(types []api.ValueType) string {
	s := ""
	for _, v := range types {
		s += map[api.ValueType]string{api.ValueTypeI32: "i", api.ValueTypeI64: "I"}[v]
	}
	return s
}

// play makes a guest call random functions, as one that answers a request, and returns how many
// calls it made before it trapped. Each end is one that is meant: a trap with a text.
func (c *caller) play(t testing.TB, seed uint64, calls int) (made int) {
	g := c.guest()
	tasks := async.New(g.instance.System())
	g.instance.ABI().Tasks = tasks
	e := newExchange(new(lull.Timer))
	tasks.Returned = func(c *canonical.Call, flat []uint64) { e.taskReturned(c, flat, "POST") }
	r := &random{rand.New(rand.NewPCG(seed, 1)), g, map[byte][]uint64{}}
	body := newIncoming(strings.NewReader(strings.Repeat("body", int(r.Uint64N(60000)))), func() http.Header { return http.Header{"X": {"1"}} }, requestCode)
	arrived := &request{head: head{method: "POST", headers: fields.Of(http.Header{"A": {"b"}})}, body: arriving(tasks, body)}
	r.handles['R'] = []uint64{uint64(g.instance.ABI().Add(arrived, 0))}
	read := make(chan struct{})
	go func() {
		defer close(read)
		if <-e.answered; e.response != nil && e.response.body != nil {
			io.Copy(io.Discard, e.response.body.pipe)
		}
	}()
	var err error
	for made = range calls {
		s := r.step()
		if r.IntN(300) == 0 {
			g.mem.WriteUint32Le(lists+64*r.Uint32N(8), r.Uint32N(3))
		}
		var trap *canonical.Trap
		if err = r.call(s); err != nil && (!errors.As(err, &trap) || strings.Contains(err.Error(), "runtime error")) {
			t.Errorf("seed %d, call %d, %s: %v", seed, made, s.name, err)
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		deadline := time.AfterFunc(time.Minute, func() { g.instance.End(ErrDeadline) })
		if err = settled(tasks, g.instance.ABI()); errors.Is(err, ErrDeadline) {
			t.Errorf("seed %d: what the host moves by itself has no end", seed)
		}
		deadline.Stop()
	}
	e.finish(err)
	g.close()
	body.pipe.CloseRead(errors.New("the connection is closed"))
	body.Drop()
	select {
	case <-read:
	case <-time.After(time.Minute):
		t.Errorf("seed %d: the response has no end", seed)
	}
	return made
}

// settled is Settle, of which a trap is an end too.
func settled(tasks *async.Tasks, i *canonical.Instance) (err error) {
	defer func() {
		if trap, ok := recover().(*canonical.Trap); ok {
			err = trap
		}
	}()
	return tasks.Settle(i)
}

// TestRandomCalls has guests call functions of requests, responses, streams and futures in any
// order: nothing but a trap ends them, and nothing is left of them.
func TestRandomCalls(t *testing.T) {
	c := newRandomCaller(t)
	c.play(t, 0, 1)
	before, made, longest := runtime.NumGoroutine(), 0, 0
	for seed := range uint64(1000) {
		n := c.play(t, seed, 200)
		made, longest = made+n, max(longest, n)
	}
	t.Logf("%d calls, at most %d of a guest", made, longest)
	if made < 20000 {
		t.Errorf("%d calls: most guests end at once", made)
	}
	for end := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
