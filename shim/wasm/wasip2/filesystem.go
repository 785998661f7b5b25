package wasip2

import (
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

var filesystemFunctions = []canonical.Function{
	{Name: "[method]descriptor.read-via-stream", Params: "iIi", Answer: code8(4, 4), Call: readViaStream},
	{Name: "[method]descriptor.write-via-stream", Params: "iIi", Answer: code8(4, 4), Call: writeViaStream},
	{Name: "[method]descriptor.append-via-stream", Params: "ii", Answer: code8(4, 4), Call: appendViaStream},
	{Name: "[method]descriptor.advise", Params: "iIIii", Answer: fails, Call: advise},
	{Name: "[method]descriptor.sync-data", Params: "ii", Answer: fails, Call: syncData},
	{Name: "[method]descriptor.get-flags", Params: "ii", Answer: fails, Call: getFlags},
	{Name: "[method]descriptor.get-type", Params: "ii", Answer: fails, Call: getType},
	{Name: "[method]descriptor.set-size", Params: "iIi", Answer: fails, Call: setSize},
	{Name: "[method]descriptor.set-times", Params: "iiIiiIii", Answer: fails, Call: setTimes},
	{Name: "[method]descriptor.read", Params: "iIIi", Answer: code8(12, 4), Reallocs: true, Call: descriptorReadAt},
	{Name: "[method]descriptor.write", Params: "iiiIi", Answer: code8(8, 8), Call: descriptorWriteAt},
	{Name: "[method]descriptor.read-directory", Params: "ii", Answer: code8(4, 4), Call: readDirectory},
	{Name: "[method]descriptor.sync", Params: "ii", Answer: fails, Call: syncAll},
	{Name: "[method]descriptor.create-directory-at", Params: "iiii", Answer: fails, Call: onPath((*wasi.Dir).Mkdir)},
	{Name: "[method]descriptor.stat", Params: "ii", Answer: code8(96, 8), Call: statOf(putStat)},
	{Name: "[method]descriptor.stat-at", Params: "iiiii", Answer: code8(96, 8), Call: statAt(putStat)},
	{Name: "[method]descriptor.set-times-at", Params: "iiiiiIiiIii", Answer: fails, Call: setTimesAt},
	{Name: "[method]descriptor.link-at", Params: "iiiiiiii", Answer: fails, Call: linkAt},
	{Name: "[method]descriptor.open-at", Params: "iiiiiii", Answer: code8(4, 4), Call: openAt},
	{Name: "[method]descriptor.readlink-at", Params: "iiii", Answer: code8(8, 4), Reallocs: true, Call: readlinkAt},
	{Name: "[method]descriptor.remove-directory-at", Params: "iiii", Answer: fails, Call: onPath((*wasi.Dir).Rmdir)},
	{Name: "[method]descriptor.rename-at", Params: "iiiiiii", Answer: fails, Call: renameAt},
	{Name: "[method]descriptor.symlink-at", Params: "iiiiii", Answer: fails, Call: symlinkAt},
	{Name: "[method]descriptor.unlink-file-at", Params: "iiii", Answer: fails, Call: onPath((*wasi.Dir).Unlink)},
	{Name: "[method]descriptor.is-same-object", Params: "ii", Results: "i", Call: isSameObject},
	{Name: "[method]descriptor.metadata-hash", Params: "ii", Answer: code8(16, 8), Call: statOf(putHash)},
	{Name: "[method]descriptor.metadata-hash-at", Params: "iiiii", Answer: code8(16, 8), Call: statAt(putHash)},
	{Name: "[resource-drop]descriptor", Params: "i", Call: canonical.Drop[*descriptor]},
	{Name: "[method]directory-entry-stream.read-directory-entry", Params: "ii", Answer: code8(16, 4), Reallocs: true, Call: readDirectoryEntry},
	{Name: "[resource-drop]directory-entry-stream", Params: "i", Call: canonical.Drop[*entries]},
	{Name: "filesystem-error-code", Params: "ii", Answer: canonical.Answer{Size: 2, Align: 1}, Call: filesystemErrorCode},
}
