package wasip1

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// ModuleName is the module that guests import.
const ModuleName = "wasi_snapshot_preview1"

// Function is a function of the module. Params has a letter for each parameter: i for i32, I for
// i64. Its only result is an i32, the errno. Call reads the parameters from p; an Errno that it
// returns is passed on, and other errors are translated.
type Function struct {
	Name, Params string
	Call         func(h *Host, mem api.Memory, p []uint64) error
}

// ParamTypes are the types of the parameters.
func (f Function) ParamTypes() []api.ValueType {
	params := make([]api.ValueType, len(f.Params))
	for i := range f.Params {
		params[i] = api.ValueTypeI32
		if f.Params[i] == 'I' {
			params[i] = api.ValueTypeI64
		}
	}
	return params
}

// ResultTypes are the types of the results.
func (f Function) ResultTypes() []api.ValueType {
	if f.Name == procExit {
		return nil
	}
	return []api.ValueType{api.ValueTypeI32}
}

// The functions that can end the guest. They need the module, and have no Call.
const (
	procExit  = "proc_exit"
	procRaise = "proc_raise"
)

// Functions lists what the specification has.
func Functions() []Function {
	return append([]Function{{procExit, "i", nil}, {procRaise, "i", nil}}, specified...)
}

// specified are the functions of the specification except those that can end the guest.
var specified = []Function{
	{"args_get", "ii", argsGet},
	{"args_sizes_get", "ii", argsSizesGet},
	{"clock_res_get", "ii", askClock(1, (*wasi.System).Resolution)},
	{"clock_time_get", "iIi", askClock(2, (*wasi.System).Now)},
	{"environ_get", "ii", environGet},
	{"environ_sizes_get", "ii", environSizesGet},
	{"fd_advise", "iIIi", on(rightFdAdvise, fdAdvise)},
	{"fd_allocate", "iII", on(rightFdAllocate, fdAllocate)},
	{"fd_close", "i", on(0, fdClose)},
	{"fd_datasync", "i", onFile(rightFdDatasync, (*wasi.File).Datasync)},
	{"fd_fdstat_get", "ii", on(0, fdFdstatGet)},
	{"fd_fdstat_set_flags", "ii", on(rightFdFdstatSetFlags, fdFdstatSetFlags)},
	{"fd_fdstat_set_rights", "iII", on(0, fdFdstatSetRights)},
	{"fd_filestat_get", "ii", on(rightFdFilestatGet, fdFilestatGet)},
	{"fd_filestat_set_size", "iI", on(rightFdFilestatSetSize, fdFilestatSetSize)},
	{"fd_filestat_set_times", "iIIi", on(rightFdFilestatSetTimes, fdFilestatSetTimes)},
	{"fd_pread", "iiiIi", fdPread},
	{"fd_prestat_dir_name", "iii", on(0, fdPrestatDirName)},
	{"fd_prestat_get", "ii", on(0, fdPrestatGet)},
	{"fd_pwrite", "iiiIi", fdPwrite},
	{"fd_read", "iiii", fdRead},
	{"fd_readdir", "iiiIi", fdReaddir},
	{"fd_renumber", "ii", on(0, fdRenumber)},
	{"fd_seek", "iIii", fdSeek},
	{"fd_sync", "i", onFile(rightFdSync, (*wasi.File).Sync)},
	{"fd_tell", "ii", fdTell},
	{"fd_write", "iiii", fdWrite},
	{"path_create_directory", "iii", onPath(rightPathCreateDirectory, (*wasi.Dir).Mkdir)},
	{"path_filestat_get", "iiiii", pathFilestatGet},
	{"path_filestat_set_times", "iiiiIIi", pathFilestatSetTimes},
	{"path_link", "iiiiiii", pathLink},
	{"path_open", "iiiiiIIii", on(rightPathOpen, pathOpen)},
	{"path_readlink", "iiiiii", pathReadlink},
	{"path_remove_directory", "iii", onPath(rightPathRemoveDirectory, (*wasi.Dir).Rmdir)},
	{"path_rename", "iiiiii", pathRename},
	{"path_symlink", "iiiii", pathSymlink},
	{"path_unlink_file", "iii", onPath(rightPathUnlinkFile, (*wasi.Dir).Unlink)},
	{"poll_oneoff", "iiii", pollOneoff},
	{"random_get", "ii", randomGet},
	{"sched_yield", "", schedYield},
	{"sock_accept", "iii", SockAccept},
	{"sock_recv", "iiiiii", SockRecv},
	{"sock_send", "iiiii", SockSend},
	{"sock_shutdown", "ii", sockShutdown},
}
