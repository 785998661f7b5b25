package wasihttp

import (
	"errors"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/target"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

// errOnce is for what a guest may ask for once: the error of a result without payload.
var errOnce = errors.New("it was given out before")

// Layouts that occur often.
var (
	maybeText   = canonical.Answer{Size: 12, Align: 4}           // option<string>, and a method
	maybeScheme = canonical.Answer{Size: 16, Align: 4}           // option<scheme>
	maybeLong   = canonical.Answer{Size: 16, Align: 8}           // option<duration>
	plainOwn    = canonical.Result(4, 4, failsPlain)             // result<own>
	headerOwn   = canonical.Result(4, 4, putHeaderError)         // result<own, header-error>
	headerNone  = canonical.Result(1, 1, putHeaderError)         // result<_, header-error>
	coded       = canonical.Result(codeSize, codeAlign, putCode) // result<T, error-code>
	future      = canonical.Answer{Size: futureSize, Align: codeAlign}
)

// failsPlain writes nothing: the error has no payload.
func failsPlain(*canonical.Call, uint32, error) {}

// typeFunctions are those of wasi:http/types.
func typeFunctions() []canonical.Function {
	return []canonical.Function{
		{Name: "[constructor]fields", Results: "i", Call: newFields},
		{Name: "[static]fields.from-list", Params: "iii", Answer: headerOwn, Call: fieldsFromList},
		{Name: "[method]fields.get", Params: "iiii", Answer: canonical.Pointer, Reallocs: true, Call: fieldsGet},
		{Name: "[method]fields.has", Params: "iii", Results: "i", Call: fieldsHas},
		{Name: "[method]fields.set", Params: "iiiiii", Answer: headerNone, Call: fieldsSet},
		{Name: "[method]fields.delete", Params: "iiii", Answer: headerNone, Call: fieldsDelete},
		{Name: "[method]fields.append", Params: "iiiiii", Answer: headerNone, Call: fieldsAppend},
		{Name: "[method]fields.entries", Params: "ii", Answer: canonical.Pointer, Reallocs: true, Call: fieldsEntries},
		{Name: "[method]fields.clone", Params: "i", Results: "i", Call: fieldsClone},
		{Name: "[resource-drop]fields", Params: "i", Call: canonical.Drop[*fields.Fields]},

		{Name: "[method]incoming-request.method", Params: "ii", Answer: maybeText, Reallocs: true, Call: headFor(arrivedHead).method},
		{Name: "[method]incoming-request.path-with-query", Params: "ii", Answer: maybeText, Reallocs: true, Call: headFor(arrivedHead).getText(headPath)},
		{Name: "[method]incoming-request.scheme", Params: "ii", Answer: maybeScheme, Reallocs: true, Call: headFor(arrivedHead).scheme},
		{Name: "[method]incoming-request.authority", Params: "ii", Answer: maybeText, Reallocs: true, Call: headFor(arrivedHead).getText(headAuthority)},
		{Name: "[method]incoming-request.headers", Params: "i", Results: "i", Call: requestHeaders},
		{Name: "[method]incoming-request.consume", Params: "ii", Answer: plainOwn, Call: requestConsume},
		{Name: "[resource-drop]incoming-request", Params: "i", Call: canonical.Drop[*incomingRequest]},

		{Name: "[constructor]outgoing-request", Params: "i", Results: "i", Call: newOutgoingRequest},
		{Name: "[method]outgoing-request.body", Params: "ii", Answer: plainOwn, Call: outgoingRequestBody},
		{Name: "[method]outgoing-request.method", Params: "ii", Answer: maybeText, Reallocs: true, Call: headFor(headOf).method},
		{Name: "[method]outgoing-request.set-method", Params: "iiii", Results: "i", Call: setMethod},
		{Name: "[method]outgoing-request.path-with-query", Params: "ii", Answer: maybeText, Reallocs: true, Call: headFor(headOf).getText(headPath)},
		{Name: "[method]outgoing-request.set-path-with-query", Params: "iiii", Results: "i", Call: setText(headPath, target.Path)},
		{Name: "[method]outgoing-request.scheme", Params: "ii", Answer: maybeScheme, Reallocs: true, Call: headFor(headOf).scheme},
		{Name: "[method]outgoing-request.set-scheme", Params: "iiiii", Results: "i", Call: setScheme},
		{Name: "[method]outgoing-request.authority", Params: "ii", Answer: maybeText, Reallocs: true, Call: headFor(headOf).getText(headAuthority)},
		{Name: "[method]outgoing-request.set-authority", Params: "iiii", Results: "i", Call: setText(headAuthority, target.Authority)},
		{Name: "[method]outgoing-request.headers", Params: "i", Results: "i", Call: headHeaders},
		{Name: "[resource-drop]outgoing-request", Params: "i", Call: canonical.Drop[*outgoingRequest]},

		{Name: "[constructor]request-options", Results: "i", Call: newRequestOptions},
		{Name: "[method]request-options.connect-timeout", Params: "ii", Answer: maybeLong, Call: getTimeout(connectTimeout)},
		{Name: "[method]request-options.set-connect-timeout", Params: "iiI", Results: "i", Call: setTimeout(connectTimeout)},
		{Name: "[method]request-options.first-byte-timeout", Params: "ii", Answer: maybeLong, Call: getTimeout(firstByteTimeout)},
		{Name: "[method]request-options.set-first-byte-timeout", Params: "iiI", Results: "i", Call: setTimeout(firstByteTimeout)},
		{Name: "[method]request-options.between-bytes-timeout", Params: "ii", Answer: maybeLong, Call: getTimeout(betweenBytesTimeout)},
		{Name: "[method]request-options.set-between-bytes-timeout", Params: "iiI", Results: "i", Call: setTimeout(betweenBytesTimeout)},
		{Name: "[resource-drop]request-options", Params: "i", Call: canonical.Drop[*requestOptions]},

		{Name: "[static]response-outparam.set", Params: "iiiiIiiii", Call: outparamSet},
		{Name: "[resource-drop]response-outparam", Params: "i", Call: canonical.Drop[*responseOutparam]},

		{Name: "[method]incoming-response.status", Params: "i", Results: "i", Call: incomingStatus},
		{Name: "[method]incoming-response.headers", Params: "i", Results: "i", Call: incomingHeaders},
		{Name: "[method]incoming-response.consume", Params: "ii", Answer: plainOwn, Call: incomingConsume},
		{Name: "[resource-drop]incoming-response", Params: "i", Call: canonical.Drop[*incomingResponse]},

		{Name: "[method]incoming-body.stream", Params: "ii", Answer: plainOwn, Call: bodyStream},
		{Name: "[static]incoming-body.finish", Params: "i", Results: "i", Call: bodyFinish},
		{Name: "[resource-drop]incoming-body", Params: "i", Call: canonical.Drop[*incomingBody]},

		{Name: "[method]future-trailers.subscribe", Params: "i", Results: "i", Call: wasip2.Subscribe[*futureTrailers]},
		{Name: "[method]future-trailers.get", Params: "ii", Answer: future, Reallocs: true, Call: trailersGet},
		{Name: "[resource-drop]future-trailers", Params: "i", Call: canonical.Drop[*futureTrailers]},

		{Name: "[constructor]outgoing-response", Params: "i", Results: "i", Call: newOutgoingResponse},
		{Name: "[method]outgoing-response.status-code", Params: "i", Results: "i", Call: responseStatus},
		{Name: "[method]outgoing-response.set-status-code", Params: "ii", Results: "i", Call: setStatus},
		{Name: "[method]outgoing-response.headers", Params: "i", Results: "i", Call: responseHeaders},
		{Name: "[method]outgoing-response.body", Params: "ii", Answer: plainOwn, Call: responseBody},
		{Name: "[resource-drop]outgoing-response", Params: "i", Call: canonical.Drop[*outgoingResponse]},

		{Name: "[method]outgoing-body.write", Params: "ii", Answer: plainOwn, Call: bodyWrite},
		{Name: "[static]outgoing-body.finish", Params: "iiii", Answer: coded, Reallocs: true, Call: outgoingFinish},
		{Name: "[resource-drop]outgoing-body", Params: "i", Call: canonical.Drop[*outgoingBody]},

		{Name: "[method]future-incoming-response.subscribe", Params: "i", Results: "i", Call: wasip2.Subscribe[*futureResponse]},
		{Name: "[method]future-incoming-response.get", Params: "ii", Answer: future, Reallocs: true, Call: responseGet},
		{Name: "[resource-drop]future-incoming-response", Params: "i", Call: canonical.Drop[*futureResponse]},

		{Name: "http-error-code", Params: "ii", Answer: canonical.Answer{Size: 8 + codeSize, Align: 8}, Reallocs: true, Call: errorCode},
	}
}

// World is what a component that speaks HTTP imports, beyond wasi:cli/command.
func World() canonical.World {
	return canonical.World{Name: "wasi:http/proxy@0.2", Interfaces: map[string][]canonical.Function{
		"wasi:http/types":            typeFunctions(),
		"wasi:http/outgoing-handler": {{Name: "handle", Params: "iiii", Answer: coded, Reallocs: true, Call: handle}},
	}}
}

// errorCode is http-error-code: what a stream of a body ended with.
func errorCode(c *canonical.Call, p []uint64, out uint32) error {
	var e ErrorCode
	found := errors.As(canonical.Get[*wasip2.IOError](c, p[0]).Cause, &e)
	c.PutBool(out, found)
	if found {
		putCode(c, out+8, e)
	}
	return nil
}
