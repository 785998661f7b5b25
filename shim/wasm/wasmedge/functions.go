// Package wasmedge is the ABI of the socket functions that WasmEdge adds to WASI preview 1's
// module, as its guests (the crate wasmedge_wasi_socket and C libraries) import them. They work on
// the table of a wasip1.Host and on package wasi; name resolution is package dns's.
//
// The functions come in two generations, some with different parameters under the same name;
// wasip1.Host.InstantiateFor looks at what the guest imports.
package wasmedge

import (
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip1"
)

// Functions lists the extension. A name may come several times, with different parameters; the
// first is the form that a guest gets of which nothing is known.
func Functions() []wasip1.Function {
	return []wasip1.Function{
		{Name: "sock_open", Params: "iii", Call: sockOpen},
		{Name: "sock_open_v2", Params: "iii", Call: sockOpen},
		{Name: "sock_bind", Params: "iii", Call: addressed((*wasi.Socket).Bind)},
		{Name: "sock_bind_v2", Params: "iii", Call: addressed((*wasi.Socket).Bind)},
		{Name: "sock_connect", Params: "iii", Call: addressed((*wasi.Socket).Connect)},
		{Name: "sock_connect_v2", Params: "iii", Call: addressed((*wasi.Socket).Connect)},
		{Name: "sock_listen", Params: "ii", Call: sockListen},
		{Name: "sock_listen_v2", Params: "ii", Call: sockListen},
		{Name: "sock_accept", Params: "ii", Call: sockAcceptV1}, // its first form is the specification's
		{Name: "sock_accept_v2", Params: "iii", Call: wasip1.SockAccept},
		{Name: "sock_recv_v2", Params: "iiiiii", Call: wasip1.SockRecv},
		{Name: "sock_recv_from", Params: "iiiiiiii", Call: sockRecvFrom},
		{Name: "sock_recv_from", Params: "iiiiiii", Call: sockRecvFromV1},
		{Name: "sock_recv_from_v2", Params: "iiiiiiii", Call: sockRecvFrom},
		{Name: "sock_send_v2", Params: "iiiii", Call: wasip1.SockSend},
		{Name: "sock_send_to", Params: "iiiiiii", Call: sockSendTo},
		{Name: "sock_send_to_v2", Params: "iiiiiii", Call: sockSendTo},
		{Name: "sock_getlocaladdr", Params: "iiii", Call: named(true, (*wasi.Socket).LocalAddr)},
		{Name: "sock_getlocaladdr", Params: "iii", Call: named(false, (*wasi.Socket).LocalAddr)},
		{Name: "sock_getlocaladdr_v2", Params: "iii", Call: named(false, (*wasi.Socket).LocalAddr)},
		{Name: "sock_getpeeraddr", Params: "iiii", Call: named(true, (*wasi.Socket).PeerAddr)},
		{Name: "sock_getpeeraddr", Params: "iii", Call: named(false, (*wasi.Socket).PeerAddr)},
		{Name: "sock_getpeeraddr_v2", Params: "iii", Call: named(false, (*wasi.Socket).PeerAddr)},
		{Name: "sock_getsockopt", Params: "iiiii", Call: sockGetsockopt},
		{Name: "sock_setsockopt", Params: "iiiii", Call: sockSetsockopt},
		{Name: "sock_getaddrinfo", Params: "iiiiiiii", Call: sockGetaddrinfo},
	}
}

// Errors of sock_getaddrinfo, which the extension puts behind the specification's.
const (
	eaiAgain    wasip1.Errno = 78
	eaiBadFlags wasip1.Errno = 79
	eaiFail     wasip1.Errno = 80
	eaiFamily   wasip1.Errno = 81
	eaiMemory   wasip1.Errno = 82
	eaiNoName   wasip1.Errno = 84
	eaiService  wasip1.Errno = 85
	eaiSockType wasip1.Errno = 86
)
