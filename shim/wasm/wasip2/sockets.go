package wasip2

// socketCode is an error-code of wasi:sockets/network.
type socketCode uint8

func (socketCode) Error() string { return "sockets of WASI 0.2 are not supported" }

// codeNotSupported is what making a socket or looking up a name answers.
const codeNotSupported socketCode = 2

// network is the resource of that name. A guest has the network of its pod.
type network struct{}

func (*network) drop() {}

// These resources of wasi:sockets cannot be made, so that every handle of them is a trap.
type (
	tcpSocket              struct{ resource }
	udpSocket              struct{ resource }
	incomingDatagramStream struct{ resource }
	outgoingDatagramStream struct{ resource }
	resolveAddressStream   struct{ resource }
)

// unmade is a method of a resource that cannot be made.
func unmade[T resource](c *call, p []uint64, _ uint32) error {
	get[T](c.host, p[0])
	return codeNotSupported
}

func instanceNetwork(c *call, p []uint64, _ uint32) error {
	p[0] = uint64(c.host.handles.add(&network{}, 0))
	return nil
}

// networkErrorCode finds no code: no stream is a socket's.
func networkErrorCode(c *call, p []uint64, out uint32) error {
	get[*ioError](c.host, p[0])
	c.put8(out, 0)
	return nil
}

func createSocket(_ *call, p []uint64, _ uint32) error {
	discriminant(p[0], 2)
	return codeNotSupported
}

func resolveAddresses(c *call, p []uint64, _ uint32) error {
	get[*network](c.host, p[0])
	c.view(uint32(p[1]), uint64(uint32(p[2])))
	return codeNotSupported
}

var networkFunctions = []function{
	{name: "network-error-code", params: "ii", answer: answer{size: 2, align: 1}, call: networkErrorCode},
	{name: "[resource-drop]network", params: "i", call: drop[*network]},
}

var lookupFunctions = []function{
	{name: "resolve-addresses", params: "iiii", answer: code8(4, 4), call: resolveAddresses},
	{name: "[method]resolve-address-stream.resolve-next-address", params: "ii", call: unmade[*resolveAddressStream]},
	{name: "[method]resolve-address-stream.subscribe", params: "i", results: "i", call: unmade[*resolveAddressStream]},
	{name: "[resource-drop]resolve-address-stream", params: "i", call: drop[*resolveAddressStream]},
}

// address are the flat parameters of a network or an option, and an ip-socket-address: 13 of them.
const address = "iiiiiiiiiiiii"

var tcpFunctions = []function{
	{name: "[method]tcp-socket.start-bind", params: "i" + address + "i", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.finish-bind", params: "ii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.start-connect", params: "i" + address + "i", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.finish-connect", params: "ii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.start-listen", params: "ii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.finish-listen", params: "ii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.accept", params: "ii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.local-address", params: "ii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.remote-address", params: "ii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.is-listening", params: "i", results: "i", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.address-family", params: "i", results: "i", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.set-listen-backlog-size", params: "iIi", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.keep-alive-enabled", params: "ii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.set-keep-alive-enabled", params: "iii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.keep-alive-idle-time", params: "ii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.set-keep-alive-idle-time", params: "iIi", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.keep-alive-interval", params: "ii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.set-keep-alive-interval", params: "iIi", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.keep-alive-count", params: "ii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.set-keep-alive-count", params: "iii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.hop-limit", params: "ii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.set-hop-limit", params: "iii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.receive-buffer-size", params: "ii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.set-receive-buffer-size", params: "iIi", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.send-buffer-size", params: "ii", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.set-send-buffer-size", params: "iIi", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.subscribe", params: "i", results: "i", call: unmade[*tcpSocket]},
	{name: "[method]tcp-socket.shutdown", params: "iii", call: unmade[*tcpSocket]},
	{name: "[resource-drop]tcp-socket", params: "i", call: drop[*tcpSocket]},
}

var udpFunctions = []function{
	{name: "[method]udp-socket.start-bind", params: "i" + address + "i", call: unmade[*udpSocket]},
	{name: "[method]udp-socket.finish-bind", params: "ii", call: unmade[*udpSocket]},
	{name: "[method]udp-socket.stream", params: "i" + address + "i", call: unmade[*udpSocket]},
	{name: "[method]udp-socket.local-address", params: "ii", call: unmade[*udpSocket]},
	{name: "[method]udp-socket.remote-address", params: "ii", call: unmade[*udpSocket]},
	{name: "[method]udp-socket.address-family", params: "i", results: "i", call: unmade[*udpSocket]},
	{name: "[method]udp-socket.unicast-hop-limit", params: "ii", call: unmade[*udpSocket]},
	{name: "[method]udp-socket.set-unicast-hop-limit", params: "iii", call: unmade[*udpSocket]},
	{name: "[method]udp-socket.receive-buffer-size", params: "ii", call: unmade[*udpSocket]},
	{name: "[method]udp-socket.set-receive-buffer-size", params: "iIi", call: unmade[*udpSocket]},
	{name: "[method]udp-socket.send-buffer-size", params: "ii", call: unmade[*udpSocket]},
	{name: "[method]udp-socket.set-send-buffer-size", params: "iIi", call: unmade[*udpSocket]},
	{name: "[method]udp-socket.subscribe", params: "i", results: "i", call: unmade[*udpSocket]},
	{name: "[resource-drop]udp-socket", params: "i", call: drop[*udpSocket]},
	{name: "[method]incoming-datagram-stream.receive", params: "iIi", reallocs: true, call: unmade[*incomingDatagramStream]},
	{name: "[method]incoming-datagram-stream.subscribe", params: "i", results: "i", call: unmade[*incomingDatagramStream]},
	{name: "[resource-drop]incoming-datagram-stream", params: "i", call: drop[*incomingDatagramStream]},
	{name: "[method]outgoing-datagram-stream.check-send", params: "ii", call: unmade[*outgoingDatagramStream]},
	{name: "[method]outgoing-datagram-stream.send", params: "iiii", call: unmade[*outgoingDatagramStream]},
	{name: "[method]outgoing-datagram-stream.subscribe", params: "i", results: "i", call: unmade[*outgoingDatagramStream]},
	{name: "[resource-drop]outgoing-datagram-stream", params: "i", call: drop[*outgoingDatagramStream]},
}
