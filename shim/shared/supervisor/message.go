package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// message is one packet between a shim and its supervisor, with the files that came with it. One
// field says what it is.
type message struct {
	Keep   string `json:"keep,omitempty"`   // both ways: the files and the note under this key, in place of earlier ones
	Note   []byte `json:"note,omitempty"`   // with Keep
	Drop   string `json:"drop,omitempty"`   // to the supervisor: close what is under this key; with a slash at its end: under all that start with it
	Watch  int    `json:"watch,omitempty"`  // to the supervisor: remember how this process ends, if it ends as a child of the supervisor
	Claim  int    `json:"claim,omitempty"`  // to the supervisor: the same of a process whose shim is dead; an Exit answers if it has ended
	Forget int    `json:"forget,omitempty"` // to the supervisor: no longer
	Exit   *Exit  `json:"exit,omitempty"`   // both ways: a process has ended
	Ready  bool   `json:"ready,omitempty"`  // to the shim: that is all that an earlier one left
	Life   int    `json:"life,omitempty"`   // with Ready: how many shims the supervisor has started

	fds []int // numbers, not files: Go's poller would wake the supervisor with each line of a container
}

// Exit is how a process ended.
type Exit struct {
	PID  int       `json:"pid"`
	Code int       `json:"code"` // exit status verbatim, or 128 + signal
	At   time.Time `json:"at"`   // when it was noticed
}

// Unknown is the code of a process that has exited without an exit record.
const Unknown = 255

// Bounds of one packet.
const (
	maxMessage = 64 << 10
	maxFiles   = 32
)

// send sends a packet. What it has returned from arrives, also when the sender dies.
func send(conn *net.UnixConn, m message) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(data) > maxMessage {
		return fmt.Errorf("message of %d bytes: at most %d fit", len(data), maxMessage)
	}
	var rights []byte
	if len(m.fds) > 0 {
		rights = unix.UnixRights(m.fds...)
	}
	_, _, err = conn.WriteMsgUnix(data, rights, nil)
	return err
}

// copies makes descriptors of files that are to be sent, for closeAll.
func copies(files []*os.File) ([]int, error) {
	fds := make([]int, len(files))
	for i, f := range files {
		raw, err := f.SyscallConn() // Fd would have the file block
		if err == nil {
			controlErr := raw.Control(func(fd uintptr) { fds[i], err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
			err = errors.Join(controlErr, err)
		}
		if err != nil {
			closeAll(fds[:i])
			return nil, fmt.Errorf("hand over %q: %w", f.Name(), err)
		}
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// receiver takes packets, one after the other.
type receiver struct {
	conn         *net.UnixConn
	data, rights []byte
}

func newReceiver(conn *net.UnixConn) *receiver {
	return &receiver{conn: conn, data: make([]byte, maxMessage), rights: make([]byte, unix.CmsgSpace(4*maxFiles))}
}

// next takes the next packet. io.EOF when the other side has exited.
func (in *receiver) next() (message, error) {
	n, r, flags, _, err := in.conn.ReadMsgUnix(in.data, in.rights)
	if errors.Is(err, unix.ECONNRESET) { // the other side died with something unread: that is told once, before what it had said
		n, r, flags, _, err = in.conn.ReadMsgUnix(in.data, in.rights)
	}
	if err != nil {
		return message{}, err
	}
	var m message
	controls, err := unix.ParseSocketControlMessage(in.rights[:r])
	if err != nil {
		return m, fmt.Errorf("read files of message: %w", err)
	}
	for i := range controls {
		fds, err := unix.ParseUnixRights(&controls[i])
		if err != nil {
			continue // of another kind
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			m.fds = append(m.fds, fd)
		}
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		m.close()
		return m, fmt.Errorf("message is longer than %d bytes", maxMessage)
	}
	if err := json.Unmarshal(in.data[:n], &m); err != nil {
		m.close()
		return m, fmt.Errorf("decode message: %w", err)
	}
	return m, nil
}

func (m *message) close() {
	closeAll(m.fds)
	m.fds = nil
}

// pair makes the two ends of a link: packets, so that nobody who dies leaves half a message.
func pair() (supervisor, shim *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make link: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "supervisor"), os.NewFile(uintptr(fds[1]), "shim"), nil
}

// connection makes a link's end a connection. The file is closed.
func connection(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("open link: %w", err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, fmt.Errorf("open link: it is a %T", conn)
	}
	return unixConn, nil
}
