package lower

// Exports of a component that answers HTTP requests.
const (
	// HandleName is that of WASI 0.2: a function that takes the handles of an incoming-request and a
	// response-outparam.
	HandleName = "wasi:http/incoming-handler#handle"
	// HandlerName is that of WASI 0.3: a function that takes the handle of a request. The response is
	// what its task has returned.
	HandlerName = "wasi:http/handler#handle"
)

// IsHandle says whether an export is a function that answers HTTP requests.
func IsHandle(export string) bool { return export == HandleName || export == HandlerName }

// handleName is what both are called in their interfaces.
const handleName = "handle"

// handler is a core module that exports HandleName: it passes its parameters on to "handle", and
// then calls "post-return" if the component has one.
func handler(postReturn bool) []byte {
	const (
		i32        = 0x7f
		form       = 0x60
		handleType = 0 // [i32 i32] -> []
		postType   = 1 // [] -> []
		opCall     = 0x10
		opLocalGet = 0x20
		opEnd      = 0x0b
	)
	imports := [][]byte{function("handle", handleType)}
	body := []byte{0, opLocalGet, 0, opLocalGet, 1, opCall, 0}
	if postReturn {
		imports = append(imports, function("post-return", postType))
		body = append(body, opCall, 1)
	}
	body = append(body, opEnd)
	return caller([][]byte{{form, 2, i32, i32, 0}, {form, 0, 0}}, imports, HandleName, handleType, body)
}
