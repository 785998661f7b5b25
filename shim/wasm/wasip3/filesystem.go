package wasip3

import (
	"io"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

const types = "wasi:filesystem/types"

// Layouts of parameters that are in memory.
const (
	timestamp = "<||(Ii)>" // new-timestamp
	setTimes  = "i" + timestamp + timestamp
)

func filesystemFunctions() []canonical.Function {
	all := []canonical.Function{
		{Name: "[method]descriptor.read-via-stream", Params: "iIi", Answer: canonical.Pointer, Call: readViaStream},
		{Name: "[method]descriptor.write-via-stream", Params: "iiI", Results: "i", Call: writeViaStream},
		{Name: "[method]descriptor.append-via-stream", Params: "ii", Results: "i", Call: appendViaStream},
		{Name: "[method]descriptor.read-directory", Params: "ii", Answer: canonical.Pointer, Call: readDirectory},
		{Name: "[method]descriptor.get-type", Params: "ii", Async: true, Answer: fileCode(typeSize, typeAlign), Call: getType},
		{Name: "[method]descriptor.stat", Params: "ii", Async: true, Answer: fileCode(statSize, 8), Call: stat},
		{Name: "[method]descriptor.stat-at", Params: "iiiii", Async: true, Answer: fileCode(statSize, 8), Call: statAt},
		like(types, "[resource-drop]descriptor", "[resource-drop]descriptor"),
	}
	// These differ from WASI 0.2 in the error-code alone: the size and alignment of what they return,
	// and the layout of parameters that are in memory.
	for name, as := range map[string]struct {
		size, align uint32
		spill       string
	}{
		"advise":              {0, 1, ""},
		"sync-data":           {0, 1, ""},
		"sync":                {0, 1, ""},
		"get-flags":           {1, 1, ""},
		"set-size":            {0, 1, ""},
		"set-times":           {0, 1, setTimes},
		"create-directory-at": {0, 1, ""},
		"set-times-at":        {0, 1, "ibs" + timestamp + timestamp},
		"link-at":             {0, 1, "ibsis"},
		"open-at":             {4, 4, "ibsbb"},
		"readlink-at":         {8, 4, ""},
		"remove-directory-at": {0, 1, ""},
		"rename-at":           {0, 1, "isis"},
		"symlink-at":          {0, 1, "iss"},
		"unlink-file-at":      {0, 1, ""},
		"metadata-hash":       {16, 8, ""},
		"metadata-hash-at":    {16, 8, ""},
	} {
		f := like(types, "[method]descriptor."+name, "[method]descriptor."+name)
		f.Async, f.Answer, f.Spill = true, fileCode(as.size, as.align), as.spill
		if name == "open-at" {
			f.Call = wasip2.OpenAt
		}
		all = append(all, f)
	}
	same := like(types, "[method]descriptor.is-same-object", "[method]descriptor.is-same-object")
	same.Async, same.Stored = true, 1
	return append(all, same)
}

// A descriptor-type is a variant whose last case has an option<string>.
const (
	typeSize  = 16
	typeAlign = 4
	typeOther = 7
)

// fileTypes maps types of files to the specification's descriptor-type.
var fileTypes = [...]uint8{
	wasi.TypeUnknown:         typeOther,
	wasi.TypeBlockDevice:     0,
	wasi.TypeCharacterDevice: 1,
	wasi.TypeDirectory:       2,
	wasi.TypeFIFO:            3,
	wasi.TypeSymbolicLink:    4,
	wasi.TypeRegularFile:     5,
	wasi.TypeSocketDatagram:  6,
	wasi.TypeSocketStream:    6,
}

// putType writes a descriptor-type, without a text.
func putType(c *canonical.Call, at uint32, t wasi.Type) {
	c.Put8(at, fileTypes[t])
	c.Put8(at+typeAlign, 0)
}

func getType(c *canonical.Call, p []uint64, out uint32) error {
	s := wasip2.ShareDescriptor(c, p[0])
	defer s.Release()
	putType(c, out, s.File().Type())
	return nil
}

// statSize is that of a descriptor-stat, in bytes.
const statSize = 104

func putStat(c *canonical.Call, out uint32, st *unix.Stat_t) {
	putType(c, out, wasi.TypeOf(st))
	c.Put64(out+16, uint64(st.Nlink))
	c.Put64(out+24, uint64(st.Size))
	for i, t := range []unix.Timespec{st.Atim, st.Mtim, st.Ctim} {
		at := out + 32 + 24*uint32(i)
		c.Put8(at, 1)
		c.Put64(at+8, uint64(t.Sec))
		c.Put32(at+16, uint32(t.Nsec))
	}
}

func stat(c *canonical.Call, p []uint64, out uint32) error {
	var st unix.Stat_t
	if err := wasip2.Stat(c, p, &st); err != nil {
		return err
	}
	putStat(c, out, &st)
	return nil
}

func statAt(c *canonical.Call, p []uint64, out uint32) error {
	var st unix.Stat_t
	if err := wasip2.StatAt(c, p, &st); err != nil {
		return err
	}
	putStat(c, out, &st)
	return nil
}

// entry is the element of a stream of directory-entry: a descriptor-type and a name.
var entry = async.Element{Size: typeSize + 8, Align: 4}

// entries is a stream of the entries of a directory.
type entries struct {
	of      *wasip2.Entries // nil for what is no directory
	outcome *outcome
	failure error
}

func readDirectory(c *canonical.Call, p []uint64, out uint32) error {
	s := &entries{outcome: fileOutcome()}
	s.of, s.failure = wasip2.NewEntries(c, p[0])
	c.Put32(out, async.NewStream(c, entry, s))
	c.Put32(out+4, s.outcome.give(c))
	return nil
}

// WaitsFor implements async.Work.
func (*entries) WaitsFor() (wasi.Subscription, bool) { return wasi.Subscription{}, false }

// Read implements async.Source.
func (s *entries) Read(c *canonical.Call, at, n uint32) (uint32, error) {
	if s.failure != nil {
		return 0, s.failure
	}
	for i := range n {
		filetype, name, found, err := s.of.Next()
		switch {
		case err != nil:
			s.failure = err
			return i, err
		case !found:
			return i, io.EOF
		}
		putType(c, at, filetype)
		c.PutBytes(at+typeSize, name)
		at += entry.Size
	}
	return n, nil
}

// Close implements async.Source.
func (s *entries) Close() {
	s.outcome.keep(s.failure)
	if s.of != nil {
		s.of.Drop()
	}
}
