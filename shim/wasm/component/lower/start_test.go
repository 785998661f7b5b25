package lower

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
)

// TestHandlerPassesOn both handles, and calls post-return behind.
func TestHandlerPassesOn(t *testing.T) {
	for _, post := range []bool{false, true} {
		ctx := context.Background()
		r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
		defer r.Close(ctx)
		var called []string
		handle := func(_ context.Context, request, out uint32) { called = append(called, fmt.Sprint(request, " ", out)) }
		if _, err := r.NewHostModuleBuilder("handle").NewFunctionBuilder().WithFunc(handle).Export("handle").Instantiate(ctx); err != nil {
			t.Fatal(err)
		}
		returned := func(context.Context) { called = append(called, "post-return") }
		if _, err := r.NewHostModuleBuilder("post-return").NewFunctionBuilder().WithFunc(returned).Export("post-return").Instantiate(ctx); err != nil {
			t.Fatal(err)
		}
		m, err := r.Instantiate(ctx, handler(post))
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"7 8"}
		if post {
			want = append(want, "post-return")
		}
		if _, err := m.ExportedFunction(HandleName).Call(ctx, 7, 8); err != nil || !slices.Equal(called, want) {
			t.Errorf("called %q, %v", called, err)
		}
	}
}

// TestStarter does what a host does with the result of wasi:cli/run: nothing for ok, exit with 1
// for an error, a trap for what is neither. The function post-return is called before the exit.
func TestStarter(t *testing.T) {
	for _, c := range []struct {
		result uint32
		post   bool
		want   []string
		trap   bool
	}{
		{0, false, []string{"run"}, false},
		{0, true, []string{"run", "post-return 0"}, false},
		{1, false, []string{"run", "exit 1"}, false},
		{1, true, []string{"run", "post-return 1", "exit 1"}, false},
		{2, true, []string{"run"}, true},
	} {
		t.Run(fmt.Sprint(c.result, c.post), func(t *testing.T) {
			ctx := context.Background()
			r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
			defer r.Close(ctx)
			var called []string
			takes := func(name string) {
				f := func(_ context.Context, v uint32) { called = append(called, fmt.Sprint(name, " ", v)) }
				if _, err := r.NewHostModuleBuilder(name).NewFunctionBuilder().WithFunc(f).Export(name).Instantiate(ctx); err != nil {
					t.Fatal(err)
				}
			}
			takes("exit")
			takes("post-return")
			run := func(context.Context) uint32 { called = append(called, "run"); return c.result }
			if _, err := r.NewHostModuleBuilder("run").NewFunctionBuilder().WithFunc(run).Export("run").Instantiate(ctx); err != nil {
				t.Fatal(err)
			}
			_, err := r.Instantiate(ctx, starter(c.post)) // which calls _start
			if (err != nil) != c.trap || !slices.Equal(called, c.want) {
				t.Errorf("called %q, %v", called, err)
			}
		})
	}
}
