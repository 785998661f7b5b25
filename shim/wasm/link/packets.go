package link

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Pair makes the two ends of a link.
func Pair() (engine, guest *os.File, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make link: %w", err)
	}
	return os.NewFile(uintptr(ends[0]), "link"), os.NewFile(uintptr(ends[1]), "link"), nil
}

// Warm has the types of what is said learned by who encodes and decodes them, which takes longer
// than to say it.
func Warm() error {
	data, err := json.Marshal(Message{Kind: Created})
	if err == nil {
		err = json.Unmarshal(data, new(Message))
	}
	if err == nil {
		err = json.Unmarshal([]byte(`{"args":[""],"load":{}}`), new(Config))
	}
	return err
}

// Send sends a message, which arrives whole or not at all.
func Send(to *os.File, m Message) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	_, err = to.Write(data)
	return err
}

// Receive takes the next message. io.EOF is the end of the link.
func Receive(from *os.File) (Message, error) { return message(packet(from, 0)) }

// Peek is the next message. It stays that until Skip, also for others who have this end of the
// link. io.EOF is the end of the link.
func Peek(from *os.File) (Message, error) { return message(packet(from, unix.MSG_PEEK)) }

// Skip drops the next message, which there is.
func Skip(from *os.File) error {
	_, err := receive(from, nil, 0)
	return err
}

func message(data []byte, err error) (m Message, _ error) {
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return Message{}, fmt.Errorf("decode message: %w", err)
	}
	return m, nil
}

// SendConfig sends the configuration.
func SendConfig(to *os.File, c Config) error {
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	data = append(binary.LittleEndian.AppendUint32(nil, uint32(len(data))), data...)
	for len(data) > 0 {
		n := min(len(data), maxPacket)
		if _, err := to.Write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// ReceiveConfig takes the configuration. io.EOF is the end of the link.
func ReceiveConfig(from *os.File) (c Config, err error) {
	data, err := packet(from, 0)
	if err != nil {
		return c, err
	}
	if len(data) < 4 {
		return c, fmt.Errorf("read configuration: it has only %d bytes", len(data))
	}
	size := binary.LittleEndian.Uint32(data)
	if size > maxConfig {
		return c, fmt.Errorf("read configuration: %d bytes are too many", size)
	}
	for data = data[4:]; uint32(len(data)) < size; {
		more, err := packet(from, 0)
		if err != nil {
			return c, fmt.Errorf("read configuration: %w", err)
		}
		data = append(data, more...)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("decode configuration: %w", err)
	}
	return c, nil
}

// packet waits for the next packet and returns it. While it waits it has no buffer.
func packet(from *os.File, flags int) ([]byte, error) {
	n, err := receive(from, nil, unix.MSG_PEEK|unix.MSG_TRUNC)
	if err != nil {
		return nil, err
	}
	if n > maxPacket {
		return nil, fmt.Errorf("read message: %d bytes are too many", n)
	}
	data := make([]byte, n)
	_, err = receive(from, data, flags)
	return data, err
}

// receive is recvmsg(2), io.EOF at the end and for an empty packet, which is never sent. The
// dropping of control messages is the kernel's. A process that ended with something unread is told
// of before what it had said, once.
func receive(from *os.File, data []byte, flags int) (n int, err error) {
	conn, err := from.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	told := false
	err = conn.Read(func(fd uintptr) bool {
		n, _, _, _, failed = unix.Recvmsg(int(fd), data, nil, flags)
		if errors.Is(failed, unix.ECONNRESET) && !told {
			told = true
			n, _, _, _, failed = unix.Recvmsg(int(fd), data, nil, flags)
		}
		return !again(failed)
	})
	switch err = errors.Join(err, failed); {
	case err != nil:
		return 0, err
	case n == 0 && (len(data) > 0 || flags != 0):
		return 0, io.EOF
	}
	return n, nil
}
