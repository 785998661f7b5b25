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

// Instantiate defines the module wasi_snapshot_preview1 in r: the 45 functions of the specification and
// the socket extension.
func (h *Host) Instantiate(ctx context.Context, r wazero.Runtime) error {
	builder := r.NewHostModuleBuilder(ModuleName)
	for _, d := range definitions {
		builder = d.export(builder, h)
	}
	i32 := []api.ValueType{api.ValueTypeI32}
	builder = builder.NewFunctionBuilder().WithGoModuleFunction(
		api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
			exit(ctx, mod, uint32(stack[0]))
		}), i32, nil).Export("proc_exit")
	builder = builder.NewFunctionBuilder().WithGoModuleFunction(
		api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
			stack[0] = uint64(procRaise(ctx, mod, uint32(stack[0])))
		}), i32, i32).Export("proc_raise")
	if _, err := builder.Instantiate(ctx); err != nil {
		return fmt.Errorf("define module %q: %w", ModuleName, err)
	}
	return nil
}

// export adds the function to a module.
func (d definition) export(builder wazero.HostModuleBuilder, h *Host) wazero.HostModuleBuilder {
	params := make([]api.ValueType, len(d.params))
	for i := range d.params {
		params[i] = api.ValueTypeI32
		if d.params[i] == 'I' {
			params[i] = api.ValueTypeI64
		}
	}
	call := d.call
	return builder.NewFunctionBuilder().WithGoModuleFunction(
		api.GoModuleFunc(func(_ context.Context, mod api.Module, stack []uint64) {
			stack[0] = uint64(call(h, mod.Memory(), stack))
		}), params, []api.ValueType{api.ValueTypeI32}).Export(d.name)
}
