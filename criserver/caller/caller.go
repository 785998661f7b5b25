// Package caller knows which process is at the other end of a connection to the CRI socket. The
// kernel says so, once for each connection; calls cost nothing more.
package caller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/sunaba-project/sunaba/host/kernelfile"
	"github.com/sunaba-project/sunaba/host/unixsocket"
)

// Process is the one that connected.
type Process struct {
	// PID is 0 for a process of a PID namespace that cannot be seen from here, UID its user.
	PID int32
	UID uint32
	// Name is what the process calls itself (comm), "" if it cannot be read: any bytes without a
	// line break, of which a process sets at most 15.
	Name string
}

// longest bounds a name, in bytes: the kernel's own threads have longer ones than programs.
const longest = 64

// Of is the process that made a call. It is not known for calls that came by TCP, or within this
// process.
func Of(ctx context.Context) (p Process, known bool) {
	at, ok := peer.FromContext(ctx)
	if !ok {
		return Process{}, false
	}
	i, known := at.AuthInfo.(info)
	return i.Process, known
}

// info is what gRPC keeps of a connection.
type info struct {
	credentials.CommonAuthInfo
	Process
}

func (info) AuthType() string { return "peercred" }

// Credentials note the process of each connection of a server. Connections stay as they are; any
// client may connect that asks for no encryption.
func Credentials() credentials.TransportCredentials { return plain{} }

type plain struct{}

func (plain) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	local, ok := conn.(*net.UnixConn)
	if !ok {
		return conn, nil, nil
	}
	p, err := process(local)
	if err != nil {
		return conn, nil, nil // the caller is not known, which refuses nothing
	}
	return conn, info{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}, p}, nil
}

func (plain) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("credentials of the CRI server are for servers only")
}

func (plain) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}

func (plain) Clone() credentials.TransportCredentials { return plain{} }

func (plain) OverrideServerName(string) error { return nil }

// process asks the kernel who connected. The name is read at once: later the process may have
// ended, and its number be another's.
func process(conn *net.UnixConn) (Process, error) {
	cred, err := unixsocket.Peer(conn)
	if err != nil {
		return Process{}, err
	}
	return Process{PID: cred.Pid, UID: cred.Uid, Name: name(cred.Pid)}, nil
}

func name(pid int32) string {
	if pid <= 0 {
		return ""
	}
	text, err := kernelfile.ReadRecord(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(text[:min(len(text), longest)], "\n")
}
