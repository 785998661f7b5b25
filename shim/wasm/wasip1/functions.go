package wasip1

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// ModuleName is the module that guests import.
const ModuleName = "wasi_snapshot_preview1"

// function is a host function. It reads its parameters from p and gives its only result back.
type function func(h *Host, mem api.Memory, p []uint64) errno

// definition is a function of the module. params has a letter for each parameter: i for i32, I for i64.
type definition struct {
	name, params string
	call         function
}

// definitions are the functions of the specification whose result is an errno: all but proc_exit and,
// because it can end the guest too, proc_raise.
var definitions = []definition{
	{"args_get", "ii", argsGet},
	{"args_sizes_get", "ii", argsSizesGet},
	{"clock_res_get", "ii", clockResGet},
	{"clock_time_get", "iIi", clockTimeGet},
	{"environ_get", "ii", environGet},
	{"environ_sizes_get", "ii", environSizesGet},
	{"fd_advise", "iIIi", fdAdvise},
	{"fd_allocate", "iII", fdAllocate},
	{"fd_close", "i", fdClose},
	{"fd_datasync", "i", fdDatasync},
	{"fd_fdstat_get", "ii", fdFdstatGet},
	{"fd_fdstat_set_flags", "ii", fdFdstatSetFlags},
	{"fd_fdstat_set_rights", "iII", fdFdstatSetRights},
	{"fd_filestat_get", "ii", fdFilestatGet},
	{"fd_filestat_set_size", "iI", fdFilestatSetSize},
	{"fd_filestat_set_times", "iIIi", fdFilestatSetTimes},
	{"fd_pread", "iiiIi", fdPread},
	{"fd_prestat_dir_name", "iii", fdPrestatDirName},
	{"fd_prestat_get", "ii", fdPrestatGet},
	{"fd_pwrite", "iiiIi", fdPwrite},
	{"fd_read", "iiii", fdRead},
	{"fd_readdir", "iiiIi", fdReaddir},
	{"fd_renumber", "ii", fdRenumber},
	{"fd_seek", "iIii", fdSeek},
	{"fd_sync", "i", fdSync},
	{"fd_tell", "ii", fdTell},
	{"fd_write", "iiii", fdWrite},
	{"path_create_directory", "iii", pathCreateDirectory},
	{"path_filestat_get", "iiiii", pathFilestatGet},
	{"path_filestat_set_times", "iiiiIIi", pathFilestatSetTimes},
	{"path_link", "iiiiiii", pathLink},
	{"path_open", "iiiiiIIii", pathOpen},
	{"path_readlink", "iiiiii", pathReadlink},
	{"path_remove_directory", "iii", pathRemoveDirectory},
	{"path_rename", "iiiiii", pathRename},
	{"path_symlink", "iiiii", pathSymlink},
	{"path_unlink_file", "iii", pathUnlinkFile},
	{"poll_oneoff", "iiii", pollOneoff},
	{"random_get", "ii", randomGet},
	{"sched_yield", "", schedYield},
	{"sock_accept", "iii", sockAccept},
	{"sock_recv", "iiiiii", sockRecv},
	{"sock_send", "iiiii", sockSend},
	{"sock_shutdown", "ii", sockShutdown},
}

// extensions are WasmEdge's socket functions. Where a name has several forms, the first is the one that
// a guest gets of which nothing is known.
var extensions = []definition{
	{"sock_open", "iii", sockOpen},
	{"sock_open_v2", "iii", sockOpen},
	{"sock_bind", "iii", sockBind},
	{"sock_bind_v2", "iii", sockBind},
	{"sock_connect", "iii", sockConnect},
	{"sock_connect_v2", "iii", sockConnect},
	{"sock_listen", "ii", sockListen},
	{"sock_listen_v2", "ii", sockListen},
	{"sock_accept", "ii", sockAcceptV1}, // its first form is the specification's
	{"sock_accept_v2", "iii", sockAccept},
	{"sock_recv_v2", "iiiiii", sockRecv},
	{"sock_recv_from", "iiiiiiii", sockRecvFrom},
	{"sock_recv_from", "iiiiiii", sockRecvFromV1},
	{"sock_recv_from_v2", "iiiiiiii", sockRecvFrom},
	{"sock_send_v2", "iiiii", sockSend},
	{"sock_send_to", "iiiiiii", sockSendTo},
	{"sock_send_to_v2", "iiiiiii", sockSendTo},
	{"sock_getlocaladdr", "iiii", sockGetlocaladdr},
	{"sock_getlocaladdr", "iii", sockGetlocaladdrV2},
	{"sock_getlocaladdr_v2", "iii", sockGetlocaladdrV2},
	{"sock_getpeeraddr", "iiii", sockGetpeeraddr},
	{"sock_getpeeraddr", "iii", sockGetpeeraddrV2},
	{"sock_getpeeraddr_v2", "iii", sockGetpeeraddrV2},
	{"sock_getsockopt", "iiiii", sockGetsockopt},
	{"sock_setsockopt", "iiiii", sockSetsockopt},
	{"sock_getaddrinfo", "iiiiiiii", sockGetaddrinfo},
}

// choose picks one definition for each name: the one with the parameters that the guest imports, else
// the first.
func choose(imports []api.FunctionDefinition) []definition {
	wanted := map[string]string{}
	for _, f := range imports {
		if module, name, ok := f.Import(); ok && module == ModuleName {
			params := ""
			for _, p := range f.ParamTypes() {
				params += map[api.ValueType]string{api.ValueTypeI32: "i", api.ValueTypeI64: "I"}[p]
			}
			wanted[name] = params
		}
	}
	index := map[string]int{}
	var chosen []definition
	for _, list := range [][]definition{definitions, extensions} {
		for _, d := range list {
			i, seen := index[d.name]
			switch {
			case !seen:
				index[d.name] = len(chosen)
				chosen = append(chosen, d)
			case wanted[d.name] == d.params:
				chosen[i] = d
			}
		}
	}
	return chosen
}

// Instantiate defines the module wasi_snapshot_preview1 in r: the 46 functions of the specification and
// the socket extension.
func (h *Host) Instantiate(ctx context.Context, r wazero.Runtime) error {
	return h.define(ctx, r, choose(nil), func(string) bool { return true })
}

// InstantiateFor is Instantiate for one guest with these imports (wazero.CompiledModule.ImportedFunctions, of
// which Import and ParamTypes are used).
// It defines the functions that they name, each of which costs a start, and no others. Some of the socket
// extension exist with different parameters under one name, and the guest gets the form that it was built for.
func (h *Host) InstantiateFor(ctx context.Context, r wazero.Runtime, imports []api.FunctionDefinition) error {
	wanted := make(map[string]bool, len(imports))
	for _, f := range imports {
		if module, name, ok := f.Import(); ok && module == ModuleName {
			wanted[name] = true
		}
	}
	return h.define(ctx, r, choose(imports), func(name string) bool { return wanted[name] })
}

// define makes the module of those functions whose names are wanted.
func (h *Host) define(ctx context.Context, r wazero.Runtime, functions []definition, wanted func(name string) bool) error {
	builder := r.NewHostModuleBuilder(ModuleName)
	for _, d := range functions {
		if wanted(d.name) {
			builder = d.export(builder, h)
		}
	}
	i32 := []api.ValueType{api.ValueTypeI32}
	if wanted("proc_exit") {
		builder = builder.NewFunctionBuilder().WithGoModuleFunction(
			api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
				exit(ctx, mod, uint32(stack[0]))
			}), i32, nil).Export("proc_exit")
	}
	if wanted("proc_raise") {
		builder = builder.NewFunctionBuilder().WithGoModuleFunction(
			api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
				stack[0] = uint64(procRaise(ctx, mod, uint32(stack[0])))
			}), i32, i32).Export("proc_raise")
	}
	if _, err := builder.Instantiate(ctx); err != nil {
		return fmt.Errorf("define module %q: %w", ModuleName, err)
	}
	return nil
}

// export adds the function to a module.
func (d definition) export(builder wazero.HostModuleBuilder, h *Host) wazero.HostModuleBuilder {
	call := d.call
	return builder.NewFunctionBuilder().WithGoModuleFunction(
		api.GoModuleFunc(func(_ context.Context, mod api.Module, stack []uint64) {
			stack[0] = uint64(call(h, mod.Memory(), stack))
		}), d.types(), []api.ValueType{api.ValueTypeI32}).Export(d.name)
}

// types are those of the parameters.
func (d definition) types() []api.ValueType {
	params := make([]api.ValueType, len(d.params))
	for i := range d.params {
		params[i] = api.ValueTypeI32
		if d.params[i] == 'I' {
			params[i] = api.ValueTypeI64
		}
	}
	return params
}
