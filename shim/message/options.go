package message

// Names of the messages that options of the Task API come in.
const (
	RuncOptionsName       = "containerd.runc.v1.Options"
	CheckpointOptionsName = "containerd.runc.v1.CheckpointOptions"
	RuntimeOptionsName    = "runtimeoptions.v1.Options"
)

// RuncOptions is how a caller wants a container to be run: what containerd's own shim for runc is
// told. What is about an OCI runtime is ignored by other engines.
type RuncOptions struct {
	NoPivotRoot   bool
	NoNewKeyring  bool
	ShimCgroup    string // cgroup of the shim itself; read when it is started
	IOUID         uint32 // owner of the pipes of a process without a terminal, 0 = as they are
	IOGID         uint32 // and their group
	Binary        string // OCI runtime; "" = the engine's default
	Root          string // the OCI runtime's --root; "" = the engine's default
	_             struct{}
	SystemdCgroup bool // cgroups through systemd
}

// CheckpointOptions is how the state of a container's processes is to be written down.
type CheckpointOptions struct {
	// Exit ends the container once its state is written; else it continues.
	Exit bool

	TCP, UnixSockets, Terminal, FileLocks bool // also these, if they are open
	EmptyNamespaces                       []string
	CgroupsMode                           string
	Images                                string // folder for the state; it is made
	Work                                  string // folder for logs; it is made. "" = beside the state
}

// RuntimeOptions is a table of options that containerd's CRI does not know.
type RuntimeOptions struct {
	TypeURL, ConfigPath string
	ConfigBody          []byte
}
