// Package serve runs a component of wasi:http/proxy or wasi:http/service as an HTTP server: it
// makes instances of the component for requests, and serves HTTP/1.1, and HTTP/2 without TLS, on a
// listener.
//
// # Instances
//
// By default each request has an instance of its own, made from the same compiled module and memory
// image, and closed when the guest has returned. While none is under way, that of the next request
// is made ahead. With Options.Kept there is one instance for all requests, one at a time; one that
// has trapped, has exited or was ended is replaced. Requests wait for an instance in the order in
// which they came, at most Options.Queue of them: more are refused.
//
// # Ends
//
// Drain takes the connections that have arrived, stops listening, and returns when all requests
// have been answered and all guests have returned.
//
// # Limits
//
// A guest that was ended and continues to compute cannot be stopped: Options.Overrun is called,
// which ends the process. The number of connections is bounded, as are the sizes of heads and how
// long they take.
package serve
