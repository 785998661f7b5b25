// Package login is a D-Bus system bus with nothing on it except a login manager that tests command:
// systemd-logind as far as it is about shutdowns, and systemd's way to reload it.
package login

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// Manager is the login manager.
type Manager struct {
	// Address is the bus's, for DBUS_SYSTEM_BUS_ADDRESS.
	Address string
	// DropIns is a folder whose *.conf files are read at a reload.
	DropIns string

	listener *net.UnixListener

	mu      sync.Mutex
	delay   time.Duration
	down    bool
	locks   int
	taken   int // locks since the start
	reloads int
	clients map[*net.UnixConn]bool
}

// Start serves a bus until the test ends. Locks hold shutdowns back for 5 s at first, as with
// systemd.
func Start(t testing.TB) *Manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "sunaba-login-") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "bus")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	m := &Manager{
		Address: "unix:path=" + path, DropIns: filepath.Join(dir, "logind.conf.d"), listener: l,
		delay: 5 * time.Second, clients: map[*net.UnixConn]bool{},
	}
	served := make(chan struct{})
	go func() { defer close(served); m.serve() }()
	t.Cleanup(func() {
		l.Close()
		<-served
		m.Disconnect()
		os.RemoveAll(dir)
	})
	return m
}

// Locks is how many locks are held.
func (m *Manager) Locks() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.locks
}

// Taken is how many locks were taken, those that were given back too.
func (m *Manager) Taken() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken
}

// Reloads is how often the configuration was read again.
func (m *Manager) Reloads() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reloads
}

// PrepareForShutdown tells all clients that the machine shuts down, or does not after all.
func (m *Manager) PrepareForShutdown(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
	signal := &dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/login1")),
		dbus.FieldInterface: dbus.MakeVariant("org.freedesktop.login1.Manager"),
		dbus.FieldMember:    dbus.MakeVariant("PrepareForShutdown"),
		dbus.FieldSender:    dbus.MakeVariant(":1.0"),
		dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(down)),
	}, Body: []any{down}}
	for c, follows := range m.clients {
		if follows {
			_ = send(c, signal)
		}
	}
}

// Disconnect ends the connections of all clients.
func (m *Manager) Disconnect() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.clients {
		c.Close()
	}
}

func (m *Manager) serve() {
	var clients sync.WaitGroup
	defer clients.Wait()
	defer m.Disconnect()
	for {
		c, err := m.listener.AcceptUnix()
		if err != nil {
			return
		}
		m.mu.Lock()
		m.clients[c] = false
		m.mu.Unlock()
		clients.Go(func() {
			m.client(c)
			m.mu.Lock()
			delete(m.clients, c)
			m.mu.Unlock()
			c.Close()
		})
	}
}

// client authenticates a client, whoever it is, and answers its calls.
func (m *Manager) client(c *net.UnixConn) {
	in := bufio.NewReader(c)
	if _, err := in.ReadByte(); err != nil { // the null byte that credentials come with
		return
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		answer := "ERROR"
		switch words := strings.Fields(line); {
		case len(words) == 0:
		case words[0] == "BEGIN":
			m.calls(c, in)
			return
		case words[0] == "NEGOTIATE_UNIX_FD":
			answer = "AGREE_UNIX_FD"
		case words[0] == "AUTH" && len(words) > 1:
			answer = "OK 0123456789abcdef0123456789abcdef"
		case words[0] == "AUTH":
			answer = "REJECTED EXTERNAL"
		}
		if _, err := c.Write([]byte(answer + "\r\n")); err != nil {
			return
		}
	}
}

func (m *Manager) calls(c *net.UnixConn, in *bufio.Reader) {
	for {
		call, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		if call.Type != dbus.TypeMethodCall {
			continue
		}
		if err := m.answer(c, call); err != nil {
			return
		}
	}
}

// answer answers one call.
func (m *Manager) answer(c *net.UnixConn, call *dbus.Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()),
	}}
	var lock *os.File
	switch method := fmt.Sprint(call.Headers[dbus.FieldMember].Value()); {
	case method == "Hello":
		reply.Body = []any{":1.7"}
	case method == "AddMatch":
		m.clients[c] = true
	case method == "Get" && fmt.Sprint(call.Body...) == "org.freedesktop.login1.Manager"+"PreparingForShutdown":
		reply.Body = []any{dbus.MakeVariant(m.down)}
	case method == "Get" && fmt.Sprint(call.Body...) == "org.freedesktop.login1.Manager"+"InhibitDelayMaxUSec":
		reply.Body = []any{dbus.MakeVariant(uint64(m.delay / time.Microsecond))}
	case method == "KillUnit" && fmt.Sprint(call.Body...) == "systemd-logind.service"+"all"+"1":
		m.reload()
	case method == "Inhibit" && m.down:
		reply.Type = dbus.TypeError
		reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.login1.OperationInProgress")
		reply.Body = []any{"The operation inhibition has been requested for is already running"}
	case method == "Inhibit":
		var err error
		if lock, err = m.lock(); err != nil {
			return err
		}
		defer lock.Close()
		reply.Body = []any{dbus.UnixFD(lock.Fd())}
	default:
		reply.Type = dbus.TypeError
		reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.UnknownMethod")
		reply.Body = []any{fmt.Sprintf("%s%v is not known", method, call.Body)}
	}
	if len(reply.Body) > 0 {
		reply.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(reply.Body...))
	}
	return send(c, reply)
}

// lock is the end of a pipe that a client holds. Its lock is over when all copies are closed.
func (m *Manager) lock() (*os.File, error) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	m.locks++
	m.taken++
	go func() {
		_, _ = ours.Read(make([]byte, 1))
		ours.Close()
		m.mu.Lock()
		m.locks--
		m.mu.Unlock()
	}()
	return theirs, nil
}

var maxDelay = regexp.MustCompile(`(?m)^InhibitDelayMaxSec=(\d+)$`)

// reload reads the drop-in files.
func (m *Manager) reload() {
	m.reloads++
	files, _ := filepath.Glob(filepath.Join(m.DropIns, "*.conf"))
	for _, file := range files {
		data, _ := os.ReadFile(file)
		if found := maxDelay.FindSubmatch(data); found != nil && bytes.Contains(data, []byte("[Login]")) {
			seconds, _ := strconv.Atoi(string(found[1]))
			m.delay = time.Duration(seconds) * time.Second
		}
	}
}

// send writes a message with the descriptor that may be in it.
func send(c *net.UnixConn, msg *dbus.Message) error {
	var oob []byte
	if len(msg.Body) == 1 {
		if _, ok := msg.Body[0].(dbus.UnixFD); ok {
			msg.Headers[dbus.FieldUnixFDs] = dbus.MakeVariant(uint32(1))
		}
	}
	var b bytes.Buffer
	fds, err := msg.EncodeToWithFDs(&b, binary.LittleEndian)
	if err != nil {
		return err
	}
	if len(fds) > 0 {
		oob = syscall.UnixRights(fds...)
	}
	_, _, err = c.WriteMsgUnix(b.Bytes(), oob, nil)
	return err
}
