package wasip2

// Option is a function that gets or sets an option of a socket, by the name that WASI 0.3 has for it.
type Option struct {
	Name, Params, Results string
	Size                  uint32 // in memory, of what it gets as a result that may be an error
	Call                  function
}

// TCPOptions are those of a TCP socket.
func TCPOptions[T Socket]() []Option {
	return append([]Option{
		{"get-keep-alive-enabled", "ii", "", 1, getKeepAlive[T]},
		{"set-keep-alive-enabled", "iii", "", 0, setKeepAlive[T]},
		{"get-keep-alive-idle-time", "ii", "", 8, getSeconds[T](keepAliveIdle)},
		{"set-keep-alive-idle-time", "iIi", "", 0, setSeconds[T](keepAliveIdle)},
		{"get-keep-alive-interval", "ii", "", 8, getSeconds[T](keepAliveInterval)},
		{"set-keep-alive-interval", "iIi", "", 0, setSeconds[T](keepAliveInterval)},
		{"get-keep-alive-count", "ii", "", 4, getCount[T]},
		{"set-keep-alive-count", "iii", "", 0, setCount[T]},
		{"get-hop-limit", "ii", "", 1, getHops[T]},
		{"set-hop-limit", "iii", "", 0, setHops[T]},
	}, bothOptions[T]()...)
}

// UDPOptions are those of a UDP socket.
func UDPOptions[T Socket]() []Option {
	return append([]Option{
		{"get-unicast-hop-limit", "ii", "", 1, getHops[T]},
		{"set-unicast-hop-limit", "iii", "", 0, setHops[T]},
	}, bothOptions[T]()...)
}

func bothOptions[T Socket]() []Option {
	return []Option{
		{"get-address-family", "i", "i", 0, addressFamily[T]},
		{"get-receive-buffer-size", "ii", "", 8, getBuffer[T](receiveBuffer)},
		{"set-receive-buffer-size", "iIi", "", 0, setBuffer[T](receiveBuffer)},
		{"get-send-buffer-size", "ii", "", 8, getBuffer[T](sendBuffer)},
		{"set-send-buffer-size", "iIi", "", 0, setBuffer[T](sendBuffer)},
	}
}
