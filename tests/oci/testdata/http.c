// http.wasm is this program as a component of WASI 0.2 that answers HTTP requests:
//
//	clang --target=wasm32 -Os -nostdlib -Wl,--no-entry -Wl,--strip-all -o core.wasm http.c
//	wasm-tools component embed wit core.wasm -o embedded.wasm    (world: include wasi:http/proxy@0.2.12; import wasi:cli/exit@0.2.12)
//	wasm-tools component new embedded.wasm -o http.wasm
//
// wasm-tools is 1.262.0, the WIT packages are those of the crate wasip2 1.0.2.
//
//	/hello     says so
//	/echo      sends the body back as it comes, and behind it the trailer x-end
//	/count     says how many requests this instance has had
//	/trap      traps before there is a response, /late behind the head of one
//	/nothing   returns without a response, /error with an error
//	/sleep     waits for an hour, /spin computes for ever
//	/grow      takes memory until there is no more, and says how many pages it has
//	/exit      ends with a code
//	/fetch     asks 127.0.0.1:8099 for /from and says with which status it answers, or 1000 and the
//	           number of an error-code
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name))) extern
#define VERSION "@0.2.12"
#define TYPES "wasi:http/types" VERSION
#define STREAMS "wasi:io/streams" VERSION

IMPORT("wasi:cli/exit" VERSION, "exit") void end(u32);
IMPORT("wasi:io/poll" VERSION, "[method]pollable.block") void block(u32);
IMPORT("wasi:clocks/monotonic-clock" VERSION, "subscribe-duration") u32 subscribe_duration(u64);
IMPORT(STREAMS, "[method]input-stream.blocking-read") void blocking_read(u32, u64, u32 *);
IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush") void blocking_write(u32, const void *, u32, u32 *);
IMPORT(STREAMS, "[resource-drop]input-stream") void drop_input(u32);
IMPORT(STREAMS, "[resource-drop]output-stream") void drop_output(u32);
IMPORT(TYPES, "[constructor]fields") u32 new_fields(void);
IMPORT(TYPES, "[method]fields.append") void append(u32, const char *, u32, const char *, u32, u8 *);
IMPORT(TYPES, "[method]incoming-request.path-with-query") void path_with_query(u32, u32 *);
IMPORT(TYPES, "[method]incoming-request.consume") void consume(u32, u32 *);
IMPORT(TYPES, "[method]incoming-body.stream") void stream(u32, u32 *);
IMPORT(TYPES, "[resource-drop]incoming-body") void drop_body(u32);
IMPORT(TYPES, "[constructor]outgoing-request") u32 new_request(u32);
IMPORT(TYPES, "[method]outgoing-request.set-scheme") u32 set_scheme(u32, u32, u32, const char *, u32);
IMPORT(TYPES, "[method]outgoing-request.set-authority") u32 set_authority(u32, u32, const char *, u32);
IMPORT(TYPES, "[method]outgoing-request.set-path-with-query") u32 set_path(u32, u32, const char *, u32);
IMPORT(TYPES, "[method]future-incoming-response.subscribe") u32 subscribe_response(u32);
IMPORT(TYPES, "[method]future-incoming-response.get") void get_response(u32, u64 *);
IMPORT(TYPES, "[method]incoming-response.status") u32 response_status(u32);
IMPORT("wasi:http/outgoing-handler" VERSION, "handle") void send(u32, u32, u32, u64 *);
IMPORT(TYPES, "[constructor]outgoing-response") u32 new_response(u32);
IMPORT(TYPES, "[method]outgoing-response.set-status-code") u32 set_status(u32, u32);
IMPORT(TYPES, "[method]outgoing-response.body") void response_body(u32, u32 *);
IMPORT(TYPES, "[method]outgoing-body.write") void body_write(u32, u32 *);
IMPORT(TYPES, "[static]outgoing-body.finish") void finish(u32, u32, u32, u64 *);
IMPORT(TYPES, "[static]response-outparam.set") void set(u32, u32, u32, u32, u64, u32, u32, u32, u32);

extern u8 __heap_base;
static u8 *next = &__heap_base;

__attribute__((export_name("cabi_realloc"))) void *cabi_realloc(void *old, u32 old_size, u32 align, u32 size) {
	next = (u8 *)(((u32)next + align - 1) & -align);
	u8 *at = next;
	next += size;
	while ((u32)next > __builtin_wasm_memory_size(0) << 16)
		if (__builtin_wasm_memory_grow(0, 1) == -1) __builtin_trap();
	return at;
}

static u32 words[8], requests;
static u64 answer[7];
static u8 small[2];

static u32 length(const char *s) {
	u32 n = 0;
	while (s[n]) n++;
	return n;
}

// respond begins a response and returns its body.
static u32 respond(u32 out, u32 status) {
	u32 fields = new_fields();
	append(fields, "content-type", 12, "text/plain", 10, small);
	u32 response = new_response(fields);
	set_status(response, status);
	response_body(response, words);
	u32 body = words[1];
	set(out, 0, response, 0, 0, 0, 0, 0, 0);
	return body;
}

// say answers with a text.
static void say(u32 out, const char *text, u32 size) {
	u32 body = respond(out, 200);
	body_write(body, words);
	u32 to = words[1];
	blocking_write(to, text, size, words);
	drop_output(to);
	finish(body, 0, 0, answer);
}

// number answers with a number.
static void number(u32 out, u32 n) {
	char text[12];
	u32 at = sizeof text;
	text[--at] = '\n';
	do text[--at] = '0' + n % 10; while (n /= 10);
	say(out, text + at, sizeof text - at);
}

static void echo(u32 request, u32 out) {
	consume(request, words);
	u32 in = words[1];
	stream(in, words);
	u32 from = words[1];
	u32 body = respond(out, 200);
	body_write(body, words);
	u32 to = words[1];
	for (;;) {
		u8 *heap = next;
		blocking_read(from, 4096, words);
		if (words[0] & 0xff) break;
		const u8 *at = (const u8 *)words[1];
		u32 size = words[2];
		blocking_write(to, at, size, words);
		if (words[0] & 0xff) break;
		next = heap;
	}
	drop_input(from), drop_body(in), drop_output(to);
	u32 trailers = new_fields();
	append(trailers, "x-end", 5, "yes", 3, small);
	finish(body, 1, trailers, answer);
}

static void fetch(u32 out) {
	u32 request = new_request(new_fields());
	set_scheme(request, 1, 0, 0, 0); // http
	set_authority(request, 1, "127.0.0.1:8099", 14);
	set_path(request, 1, "/from", 5);
	send(request, 0, 0, answer);
	if (answer[0] & 0xff) return number(out, 1000 + (answer[1] & 0xff));
	u32 future = answer[1];
	block(subscribe_response(future));
	get_response(future, answer);
	if (answer[2] & 0xff) return number(out, 1000 + (answer[3] & 0xff));
	number(out, response_status(answer[3]));
}

__attribute__((export_name("wasi:http/incoming-handler" VERSION "#handle"))) void handle(u32 request, u32 out) {
	requests++;
	path_with_query(request, words);
	const char *path = (const char *)words[1];
	u32 size = words[0] & 0xff ? words[2] : 0;
#define IS(s) (size == length(s) && !__builtin_memcmp(path, s, size))
	if (IS("/hello")) say(out, "hello\n", 6);
	else if (IS("/echo")) echo(request, out);
	else if (IS("/count")) number(out, requests);
	else if (IS("/trap")) __builtin_trap();
	else if (IS("/late")) {
		body_write(respond(out, 200), words);
		blocking_write(words[1], "begun\n", 6, words);
		__builtin_trap();
	}
	else if (IS("/nothing")) return;
	else if (IS("/error")) set(out, 1, 38, 0, 0, 0, 0, 0, 0); // internal-error(none)
	else if (IS("/sleep")) block(subscribe_duration(3600000000000));
	else if (IS("/spin")) for (volatile u32 i = 0;; i++);
	else if (IS("/grow")) {
		while (__builtin_wasm_memory_grow(0, 1) != -1);
		number(out, __builtin_wasm_memory_size(0));
	}
	else if (IS("/fetch")) fetch(out);
	else if (IS("/exit")) end(1);
	else finish(respond(out, 404), 0, 0, answer);
}

int memcmp(const void *a, const void *b, unsigned long n) {
	const u8 *x = a, *y = b;
	for (; n; n--, x++, y++)
		if (*x != *y) return *x - *y;
	return 0;
}
