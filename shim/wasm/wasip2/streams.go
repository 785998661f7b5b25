package wasip2

var streamFunctions = []function{
	{name: "[method]input-stream.read", params: "iIi", answer: flow(8, 4), reallocs: true, call: inputRead},
	{name: "[method]input-stream.blocking-read", params: "iIi", answer: flow(8, 4), reallocs: true, call: inputBlockingRead},
	{name: "[method]input-stream.skip", params: "iIi", answer: flow(8, 8), call: inputSkip},
	{name: "[method]input-stream.blocking-skip", params: "iIi", answer: flow(8, 8), call: inputBlockingSkip},
	{name: "[method]input-stream.subscribe", params: "i", results: "i", call: inputSubscribe},
	{name: "[resource-drop]input-stream", params: "i", call: drop[*input]},
	{name: "[method]output-stream.check-write", params: "ii", answer: flow(8, 8), call: outputCheckWrite},
	{name: "[method]output-stream.write", params: "iiii", answer: flows, call: outputWrite},
	{name: "[method]output-stream.blocking-write-and-flush", params: "iiii", answer: flows, call: outputBlockingWrite},
	{name: "[method]output-stream.flush", params: "ii", answer: flows, call: outputFlush},
	{name: "[method]output-stream.blocking-flush", params: "ii", answer: flows, call: outputFlush},
	{name: "[method]output-stream.subscribe", params: "i", results: "i", call: outputSubscribe},
	{name: "[method]output-stream.write-zeroes", params: "iIi", answer: flows, call: outputWriteZeroes},
	{name: "[method]output-stream.blocking-write-zeroes-and-flush", params: "iIi", answer: flows, call: outputBlockingWriteZeroes},
	{name: "[method]output-stream.splice", params: "iiIi", answer: flow(8, 8), call: outputSplice},
	{name: "[method]output-stream.blocking-splice", params: "iiIi", answer: flow(8, 8), call: outputBlockingSplice},
	{name: "[resource-drop]output-stream", params: "i", call: drop[*output]},
}
