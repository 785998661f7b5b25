package wasip1

import (
	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// GetReceiveFlags reads the flags of sock_recv; unknown ones are EINVAL.
func GetReceiveFlags(param uint64) (wasi.ReceiveFlags, error) {
	if uint32(param)&^uint32(recvPeek|recvWaitAll) != 0 {
		return 0, unix.EINVAL
	}
	var how wasi.ReceiveFlags
	if uint16(param)&recvPeek != 0 {
		how |= wasi.Peek
	}
	if uint16(param)&recvWaitAll != 0 {
		how |= wasi.WaitAll
	}
	return how, nil
}

// PutReceived writes what sock_recv answers: the number of bytes, and whether more were cut off.
func PutReceived(size, result []byte, n int, truncated bool) {
	put32(size, uint32(n))
	put16(result, 0)
	if truncated {
		put16(result, recvTruncated)
	}
}

// SockRecv is sock_recv.
func SockRecv(h *Host, mem api.Memory, p []uint64) error {
	s, err := h.SocketToRead(p[0])
	if err != nil {
		return err
	}
	size, err := Record(mem, p[4], 4)
	if err != nil {
		return err
	}
	result, err := Record(mem, p[5], 2)
	if err != nil {
		return err
	}
	buffers, err := h.Buffers(mem, p[1], p[2])
	if err != nil {
		return err
	}
	how, err := GetReceiveFlags(p[3])
	var n int
	var truncated bool
	if err == nil {
		n, truncated, err = s.Receive(buffers, how)
	}
	h.Release()
	PutReceived(size, result, n, truncated)
	return err
}

// SockSend is sock_send.
func SockSend(h *Host, mem api.Memory, p []uint64) error {
	s, err := h.SocketToWrite(p[0])
	if err != nil {
		return err
	}
	size, err := Record(mem, p[4], 4)
	if err != nil {
		return err
	}
	if uint32(p[3]) != 0 {
		return unix.EINVAL // no flag is defined
	}
	buffers, err := h.Buffers(mem, p[1], p[2])
	if err != nil {
		return err
	}
	n, err := s.Send(buffers)
	h.Release()
	put32(size, uint32(n))
	return err
}

func sockShutdown(h *Host, _ api.Memory, p []uint64) error {
	_, s, err := h.table.socket(p[0], rightSockShutdown)
	if err != nil {
		return err
	}
	switch uint32(p[1]) {
	case uint32(shutRead):
		return s.Shutdown(unix.SHUT_RD)
	case uint32(shutWrite):
		return s.Shutdown(unix.SHUT_WR)
	case uint32(shutRead | shutWrite):
		return s.Shutdown(unix.SHUT_RDWR)
	}
	return unix.EINVAL
}

// SockAccept is sock_accept.
func SockAccept(h *Host, mem api.Memory, p []uint64) error {
	if uint32(p[1])&^uint32(flagNonblock) != 0 {
		return unix.EINVAL
	}
	flags, err := getFlags(p[1])
	if err != nil {
		return err
	}
	d, s, err := h.table.socket(p[0], rightSockAccept)
	if err != nil {
		return err
	}
	out, err := Record(mem, p[2], 4)
	if err != nil {
		return err
	}
	conn, err := s.Accept(flags)
	if err != nil {
		return err
	}
	number, err := h.table.add(&conn.File, d.inheriting&rightsSocket, d.inheriting)
	if err != nil {
		return err
	}
	put32(out, number)
	return nil
}
