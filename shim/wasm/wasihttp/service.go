package wasihttp

import (
	"sync"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/target"
)

// Service is what a component that speaks HTTP imports of WASI 0.3, beyond wasi:cli/command.
func Service() canonical.World {
	return canonical.World{Name: "wasi:http/service@0.3", Release: "0.3", Load: service}
}

// A header-error and a request-options-error are variants whose last case has an option<string>.
const (
	variantSize  = 16
	variantAlign = 4
)

// Answers of WASI 0.3.
var (
	headerFailure  = canonical.Result(variantSize, variantAlign, putHeaderError3)
	optionsFailure = canonical.Result(variantSize, variantAlign, putOptionsError)
)

// sizeExceeded is the header-error that WASI 0.2 has not.
const sizeExceeded = 3

// putHeaderError3 writes a header-error of WASI 0.3.
func putHeaderError3(c *canonical.Call, at uint32, err error) {
	if err == fields.ErrFull {
		c.Put8(at, sizeExceeded)
		return
	}
	putHeaderError(c, at, err)
}

// service are the functions of each interface.
var service = sync.OnceValue(func() map[string][]canonical.Function {
	return map[string][]canonical.Function{
		"wasi:http/types":  messageFunctions(),
		"wasi:http/client": {{Name: "send", Params: "ii", Async: true, Answer: coded, Reallocs: true, Call: clientSend}},
	}
})

func messageFunctions() []canonical.Function {
	const (
		f  = "[method]fields."
		r  = "[method]request."
		o  = "[method]request-options."
		re = "[method]response."
	)
	all := []canonical.Function{
		{Name: "[constructor]fields", Results: "i", Call: newFields},
		{Name: "[static]fields.from-list", Params: "iii", Answer: headerFailure, Call: fieldsFromList},
		{Name: f + "get", Params: "iiii", Answer: canonical.Pointer, Reallocs: true, Call: fieldsGet},
		{Name: f + "has", Params: "iii", Results: "i", Call: fieldsHas},
		{Name: f + "set", Params: "iiiiii", Answer: headerFailure, Call: fieldsSet},
		{Name: f + "delete", Params: "iiii", Answer: headerFailure, Call: fieldsDelete},
		{Name: f + "get-and-delete", Params: "iiii", Answer: headerFailure, Reallocs: true, Call: fieldsGetAndDelete},
		{Name: f + "append", Params: "iiiiii", Answer: headerFailure, Call: fieldsAppend},
		{Name: f + "copy-all", Params: "ii", Answer: canonical.Pointer, Reallocs: true, Call: fieldsEntries},
		{Name: f + "clone", Params: "i", Results: "i", Call: fieldsClone},
		{Name: "[resource-drop]fields", Params: "i", Call: canonical.Drop[*fields.Fields]},

		{Name: "[static]request.new", Params: "iiiiiii", Answer: canonical.Pointer, Call: newRequest},
		{Name: r + "get-method", Params: "ii", Answer: maybeText, Reallocs: true, Call: headFor(headOf).method},
		{Name: r + "set-method", Params: "iiii", Results: "i", Call: setMethod},
		{Name: r + "get-path-with-query", Params: "ii", Answer: maybeText, Reallocs: true, Call: headFor(headOf).getText(headPath)},
		{Name: r + "set-path-with-query", Params: "iiii", Results: "i", Call: setPath},
		{Name: r + "get-scheme", Params: "ii", Answer: maybeScheme, Reallocs: true, Call: headFor(headOf).scheme},
		{Name: r + "set-scheme", Params: "iiiii", Results: "i", Call: setScheme},
		{Name: r + "get-authority", Params: "ii", Answer: maybeText, Reallocs: true, Call: headFor(headOf).getText(headAuthority)},
		{Name: r + "set-authority", Params: "iiii", Results: "i", Call: setText(headAuthority, target.Authority3)},
		{Name: r + "get-options", Params: "ii", Answer: canonical.Optional, Call: requestGetOptions},
		{Name: r + "get-headers", Params: "i", Results: "i", Call: headHeaders},
		{Name: "[static]request.consume-body", Params: "iii", Answer: canonical.Pointer, Call: consumeRequest},
		{Name: "[resource-drop]request", Params: "i", Call: canonical.Drop[*request]},

		{Name: "[constructor]request-options", Results: "i", Call: newRequestOptions},
		{Name: o + "clone", Params: "i", Results: "i", Call: optionsClone},
		{Name: "[resource-drop]request-options", Params: "i", Call: canonical.Drop[*requestOptions]},

		{Name: "[static]response.new", Params: "iiiii", Answer: canonical.Pointer, Call: newResponse},
		{Name: re + "get-status-code", Params: "i", Results: "i", Call: statusCode},
		{Name: re + "set-status-code", Params: "ii", Results: "i", Call: setStatusCode},
		{Name: re + "get-headers", Params: "i", Results: "i", Call: getHeaders},
		{Name: "[static]response.consume-body", Params: "iii", Answer: canonical.Pointer, Call: consumeResponse},
		{Name: "[resource-drop]response", Params: "i", Call: canonical.Drop[*response]},
	}
	for name, of := range map[string]func(*requestOptions) *timeout{
		"connect-timeout": connectTimeout, "first-byte-timeout": firstByteTimeout, "between-bytes-timeout": betweenBytesTimeout,
	} {
		all = append(all,
			canonical.Function{Name: o + "get-" + name, Params: "ii", Answer: maybeLong, Call: getTimeout(of)},
			canonical.Function{Name: o + "set-" + name, Params: "iiIi", Answer: optionsFailure, Call: changeTimeout(of)})
	}
	return all
}
