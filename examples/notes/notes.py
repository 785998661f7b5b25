# An HTTP API as a component of wasi:http/proxy: what it is given it counts and sorts. Each request has
# an instance of its own, so nothing is kept between two of them.
#
#   GET  /            what there is to ask, as JSON
#   POST /words?n=3   the n words that are most frequent in the text, as JSON
import json
import re
from collections import Counter
from urllib.parse import parse_qs, urlsplit

from componentize_py_types import Ok
from wit_world import exports
from wit_world.imports.types import (
    Fields, IncomingRequest, Method_Get, Method_Post, OutgoingBody, OutgoingResponse, ResponseOutparam,
)

LARGEST = 1 << 20  # of a text, in bytes


def text_of(request: IncomingRequest) -> bytes:
    """The body of a request, LARGEST bytes and one more at most."""
    body, parts, size = request.consume(), [], 0
    with body.stream() as stream:
        while size <= LARGEST:
            try:
                part = stream.blocking_read(64 << 10)
            except Exception:  # the end, or a client that has left
                break
            parts.append(part)
            size += len(part)
    return b"".join(parts)


def answer(request: IncomingRequest) -> tuple[int, dict]:
    url = urlsplit(request.path_with_query() or "/")
    method = request.method()
    if url.path == "/" and isinstance(method, Method_Get):
        return 200, {"POST /words?n=N": "the N most frequent words of the body"}
    if url.path != "/words":
        return 404, {"error": f"there is no {url.path}"}
    if not isinstance(method, Method_Post):
        return 405, {"error": "send the text by POST"}
    asked = parse_qs(url.query).get("n", ["10"])[0]
    if not asked.isdecimal() or not 1 <= int(asked) <= 100:
        return 400, {"error": "n is a number from 1 to 100"}
    text = text_of(request)
    if len(text) > LARGEST:
        return 413, {"error": f"a text has at most {LARGEST} bytes"}
    words = Counter(re.findall(r"\w+", text.decode(errors="replace").lower()))
    top = sorted(words.items(), key=lambda word: (-word[1], word[0]))[: int(asked)]
    return 200, {"words": sum(words.values()), "top": [{"word": word, "times": times} for word, times in top]}


class IncomingHandler(exports.IncomingHandler):
    def handle(self, request: IncomingRequest, response_out: ResponseOutparam) -> None:
        status, said = answer(request)
        response = OutgoingResponse(Fields.from_list([("content-type", b"application/json")]))
        response.set_status_code(status)
        body = response.body()
        ResponseOutparam.set(response_out, Ok(response))
        data = json.dumps(said).encode() + b"\n"
        with body.write() as stream:
            for at in range(0, len(data), 4096):
                stream.blocking_write_and_flush(data[at : at + 4096])
        OutgoingBody.finish(body, None)
