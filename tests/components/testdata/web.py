from wit_world import exports
from componentize_py_types import Ok
from wit_world.imports.types import (
    Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam,
)

count = 0


class IncomingHandler(exports.IncomingHandler):
    def handle(self, request: IncomingRequest, response_out: ResponseOutparam) -> None:
        global count
        count += 1
        path = request.path_with_query()
        names = sorted(name for name, _ in request.headers().entries())
        response = OutgoingResponse(Fields.from_list([("content-type", b"text/plain"), ("x-count", str(count).encode())]))
        response.set_status_code(203)
        body = response.body()
        ResponseOutparam.set(response_out, Ok(response))
        stream = body.write()
        text = f"hello from {path}\n{names}\n".encode()
        stream.blocking_write_and_flush(text)
        stream.__exit__(None, None, None)
        OutgoingBody.finish(body, None)
