// Package wasihttp is the ABI of wasi:http@0.2 (World) and @0.3 (Service) for a lowered component:
// what it adds to the world wasi:cli/command, and the http.Handler that answers requests by guests.
//
// # A request
//
// Handler takes a guest from Instances, gives it an incoming-request and a response-outparam, and
// calls its export wasi:http/incoming-handler#handle in a goroutine of its own. The goroutine of
// the connection waits for response-outparam.set, sends the head, and then the body while the guest
// writes it. Bodies pass through a pipe of 64 KiB: who is faster waits. A part of a body that the
// guest has written is sent when more than a buffer is there, or when nothing has followed for a
// millisecond.
//
// A guest of WASI 0.3 gets a request, and its task returns the response: see runAsync. Bodies are
// streams and trailers futures, which the host reads or writes on the guest's thread (contents), by
// the same pipes.
//
// # Answers in the guest's place
//
//   - 400 to a request whose target is not UTF-8;
//   - 413 where its body is larger than Limits.Body, if the guest has not answered yet;
//   - 500 if the guest traps, exits, answers with an error-code, or returns without an answer;
//   - 503 if too many requests wait for an instance;
//   - 504 if the guest has not answered in Limits.Time.
//
// Where the head has left already, the connection is closed instead, so that the client sees that
// the response is not complete. So it is where the guest drops an outgoing-body without finishing
// it. A body that is still open when the guest returns is complete, as under wasmtime. So is the
// response whose client has all bytes that content-length says, or gets none (HEAD, 204, 304),
// however the body ends.
//
// # Fields
//
// Names are in lower case. Headers that arrive are sorted by name. Fields of the connection
// (forbiddenNames) are neither shown nor taken. Fields of requests and responses cannot be changed.
// A guest of WASI 0.2 traps whose fields are larger than fields.Max; one of 0.3 gets size-exceeded.
//
// # Outgoing requests
//
// Client sends them by HTTP/1.1, over connections that the guests of a container share, without
// redirects, proxies, compression or headers of its own other than Host. Names are resolved, and
// certificates verified, by the guest's own files.
package wasihttp
