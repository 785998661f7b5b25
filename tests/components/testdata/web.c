// A component of wasi:http/proxy@0.2 that imports core functions by their flat signatures and says what
// each of them answers. The path of a request says what it does; see handle.
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name))) extern
#define VERSION "@0.2.12"
#define TYPES "wasi:http/types" VERSION
#define STREAMS "wasi:io/streams" VERSION
#define POLL "wasi:io/poll" VERSION

IMPORT(POLL, "[method]pollable.block") void block(u32);
IMPORT(POLL, "[resource-drop]pollable") void drop_pollable(u32);
IMPORT(STREAMS, "[method]input-stream.blocking-read") void blocking_read(u32, u64, u32 *);
IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush") void blocking_write(u32, const void *, u32, u32 *);
IMPORT(STREAMS, "[method]input-stream.subscribe") u32 subscribe_input(u32);
IMPORT(STREAMS, "[resource-drop]input-stream") void drop_input(u32);
IMPORT(STREAMS, "[resource-drop]output-stream") void drop_output(u32);
IMPORT("wasi:io/error" VERSION, "[resource-drop]error") void drop_error(u32);
IMPORT(TYPES, "http-error-code") void http_error_code(u32, u8 *);
IMPORT(TYPES, "[constructor]fields") u32 new_fields(void);
IMPORT(TYPES, "[static]fields.from-list") void from_list(const u32 *, u32, u8 *);
IMPORT(TYPES, "[method]fields.get") void fields_get(u32, const char *, u32, u32 *);
IMPORT(TYPES, "[method]fields.has") u32 fields_has(u32, const char *, u32);
IMPORT(TYPES, "[method]fields.set") void fields_set(u32, const char *, u32, const u32 *, u32, u8 *);
IMPORT(TYPES, "[method]fields.delete") void fields_delete(u32, const char *, u32, u8 *);
IMPORT(TYPES, "[method]fields.append") void fields_append(u32, const char *, u32, const char *, u32, u8 *);
IMPORT(TYPES, "[method]fields.entries") void fields_entries(u32, u32 *);
IMPORT(TYPES, "[method]fields.clone") u32 fields_clone(u32);
IMPORT(TYPES, "[resource-drop]fields") void drop_fields(u32);
IMPORT(TYPES, "[method]incoming-request.method") void request_method(u32, u32 *);
IMPORT(TYPES, "[method]incoming-request.path-with-query") void request_path(u32, u32 *);
IMPORT(TYPES, "[method]incoming-request.scheme") void request_scheme(u32, u32 *);
IMPORT(TYPES, "[method]incoming-request.authority") void request_authority(u32, u32 *);
IMPORT(TYPES, "[method]incoming-request.headers") u32 request_headers(u32);
IMPORT(TYPES, "[method]incoming-request.consume") void request_consume(u32, u32 *);
IMPORT(TYPES, "[resource-drop]incoming-request") void drop_request(u32);
IMPORT(TYPES, "[method]incoming-body.stream") void body_stream(u32, u32 *);
IMPORT(TYPES, "[static]incoming-body.finish") u32 body_finish(u32);
IMPORT(TYPES, "[method]future-trailers.subscribe") u32 trailers_subscribe(u32);
IMPORT(TYPES, "[method]future-trailers.get") void trailers_get(u32, u8 *);
IMPORT(TYPES, "[constructor]outgoing-response") u32 new_response(u32);
IMPORT(TYPES, "[method]outgoing-response.set-status-code") u32 set_status(u32, u32);
IMPORT(TYPES, "[method]outgoing-response.headers") u32 response_headers(u32);
IMPORT(TYPES, "[method]outgoing-response.body") void response_body(u32, u32 *);
IMPORT(TYPES, "[method]outgoing-body.write") void body_write(u32, u32 *);
IMPORT(TYPES, "[static]outgoing-body.finish") void outgoing_finish(u32, u32, u32, u8 *);
IMPORT(TYPES, "[resource-drop]outgoing-body") void drop_outgoing_body(u32);
IMPORT(TYPES, "[static]response-outparam.set") void outparam_set(u32, u32, u32, u32, u64, u32, u32, u32, u32);
IMPORT(TYPES, "[resource-drop]response-outparam") void drop_outparam(u32);
IMPORT(TYPES, "[constructor]outgoing-request") u32 new_request(u32);
IMPORT(TYPES, "[method]outgoing-request.body") void outgoing_body(u32, u32 *);
IMPORT(TYPES, "[method]outgoing-request.set-method") u32 set_method(u32, u32, const char *, u32);
IMPORT(TYPES, "[method]outgoing-request.set-path-with-query") u32 set_path(u32, u32, const char *, u32);
IMPORT(TYPES, "[method]outgoing-request.set-scheme") u32 set_scheme(u32, u32, u32, const char *, u32);
IMPORT(TYPES, "[method]outgoing-request.set-authority") u32 set_authority(u32, u32, const char *, u32);
IMPORT(TYPES, "[method]incoming-response.status") u32 response_status(u32);
IMPORT(TYPES, "[method]incoming-response.headers") u32 incoming_headers(u32);
IMPORT(TYPES, "[method]incoming-response.consume") void response_consume(u32, u32 *);
IMPORT(TYPES, "[method]future-incoming-response.subscribe") u32 response_subscribe(u32);
IMPORT(TYPES, "[method]future-incoming-response.get") void response_get(u32, u8 *);
IMPORT("wasi:http/outgoing-handler" VERSION, "handle") void send(u32, u32, u32, u8 *);

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

int memcmp(const void *a, const void *b, unsigned long n) {
	const u8 *x = a, *y = b;
	for (; n; n--, x++, y++)
		if (*x != *y) return *x - *y;
	return 0;
}

void *memcpy(void *to, const void *from, unsigned long n) {
	volatile u8 *x = to;
	const u8 *y = from;
	while (n--) *x++ = *y++;
	return to;
}

static u32 words[8];
static u8 small[4];
static u64 large[8];
#define LARGE ((u8 *)large)
#define WORD(p, at) (*(u32 *)((u8 *)(p) + (at)))

static u32 length(const char *s) {
	u32 n = 0;
	while (s[n]) n++;
	return n;
}

// What is said is kept until the response has a body.
static char said[1 << 16];
static u32 size;

static void put(const char *at, u32 n) {
	for (u32 i = 0; i < n && size < sizeof said; i++) said[size++] = at[i];
}
static void text(const char *s) { put(s, length(s)); }
static void number(u32 n) {
	char digits[12];
	u32 at = sizeof digits;
	do digits[--at] = '0' + n % 10; while (n /= 10);
	put(digits + at, sizeof digits - at);
}
static void line(const char *name, u32 n) { text(name), text(": "), number(n), text("\n"); }
static void optional(const char *name, const u32 *o) {
	text(name), text(": ");
	if (o[0] & 0xff) put((const char *)o[1], o[2]);
	else text("none");
	text("\n");
}

// entries says what fields hold; the name skip is left out.
static void entries(u32 fields, const char *skip) {
	fields_entries(fields, words);
	const u32 *list = (const u32 *)words[0];
	for (u32 n = words[1]; n; n--, list += 4) {
		if (list[1] == length(skip) && !memcmp((void *)list[0], skip, list[1])) continue;
		text("  "), put((const char *)list[0], list[1]), text(" = "), put((const char *)list[2], list[3]), text("\n");
	}
}

static u32 add(u32 fields, const char *name, const char *value) {
	fields_append(fields, name, length(name), value, length(value), small);
	return small[0] ? 1 + small[1] : 0;
}

// start answers with a status, and returns the outgoing-body.
static u32 start(u32 out, u32 status, u32 fields) {
	u32 response = new_response(fields);
	if (set_status(response, status)) __builtin_trap();
	response_body(response, words);
	u32 body = words[1], failed = words[0] & 0xff;
	outparam_set(out, 0, response, 0, 0, 0, 0, 0, 0);
	return failed ? 0 : body;
}

// write writes all, and returns 0, 1 for a closed stream, or 2 + the error-code of one that failed.
static u32 write(u32 to, const char *at, u32 n) {
	for (u32 part; n; at += part, n -= part) {
		part = n < 4096 ? n : 4096;
		blocking_write(to, at, part, words);
		if (!(words[0] & 0xff)) continue;
		if ((words[1] & 0xff) == 1) return 1;
		http_error_code(words[2], LARGE);
		drop_error(words[2]);
		return LARGE[0] ? 2 + LARGE[8] : 99;
	}
	return 0;
}

// finish ends a body, and returns 0 or 1 + the error-code.
static u32 finish(u32 body, u32 trailers) {
	outgoing_finish(body, trailers != 0, trailers, LARGE);
	return LARGE[0] ? 1 + LARGE[8] : 0;
}

// say answers with what was said.
static void say(u32 out) {
	u32 body = start(out, 200, new_fields());
	body_write(body, words);
	u32 to = words[1];
	write(to, said, size);
	drop_output(to);
	finish(body, 0);
}

// receive says what a body holds and how it has ended, and its trailers.
static void receive(u32 body) {
	body_stream(body, words);
	u32 from = words[1], total = 0, sum = 0;
	for (;;) {
		u8 *heap = next;
		blocking_read(from, 4096, words);
		if (words[0] & 0xff) break;
		const u8 *at = (const u8 *)words[1];
		for (u32 i = 0; i < words[2]; i++) sum = sum * 31 + at[i];
		total += words[2];
		next = heap;
	}
	line("bytes", total), line("sum", sum);
	if ((words[1] & 0xff) == 0) {
		http_error_code(words[2], LARGE);
		text("failed with a code: "), number(LARGE[0]), text("\n");
		drop_error(words[2]);
	}
	drop_input(from);
	u32 future = body_finish(body);
	u32 p = trailers_subscribe(future);
	block(p), drop_pollable(p);
	trailers_get(future, LARGE);
	line("trailers are there", LARGE[0]), line("taken", LARGE[8]), line("failed", LARGE[16]);
	if (!LARGE[16]) {
		line("some", LARGE[24]);
		if (LARGE[24]) entries(WORD(LARGE, 28), "");
	}
	trailers_get(future, LARGE);
	line("taken", LARGE[8]);
}

static void about(u32 request) {
	request_method(request, words);
	line("method", words[0] & 0xff);
	if ((words[0] & 0xff) == 9) put((const char *)words[1], words[2]), text("\n");
	request_scheme(request, words);
	line("scheme", words[0] & 0xff), line("scheme", words[1] & 0xff);
	request_path(request, words), optional("path", words);
	u32 headers = request_headers(request);
	entries(headers, "");
	line("append", add(headers, "a", "b")), line("append forbidden", add(headers, "host", "b")), line("append bad", add(headers, "", "b"));
	fields_delete(headers, "a", 1, small);
	line("delete", small[0]), line("delete", small[1]);
	request_consume(request, words);
	line("consume", words[0] & 0xff);
	u32 body = words[1];
	request_consume(request, words);
	line("consume again", words[0] & 0xff);
	drop_request(request);
	line("has", fields_has(headers, "X-A", 3));
	receive(body);
}

static void fields(void) {
	u32 f = new_fields();
	static const char *pairs[][2] = {{"X-B", "1"}, {"a", "2"}, {"x-b", "3"}, {"c", ""}, {"", "x"}, {"sp ace", "x"}, {"\xc3\xbc", "x"}, {"v", "\n"},
		{"v", "\x7f"}, {"v", "\t\xff"}, {"v", " spaced "}, {"Host", "x"}, {"connection", "x"}, {"keep-alive", "x"}, {"transfer-encoding", "x"}, {"te", "x"}, {"upgrade", "x"},
		{"http2-settings", "x"}, {"proxy-connection", "x"}, {"proxy-authenticate", "x"}, {"proxy-authorization", "x"}, {"content-length", "x"},
		{"trailer", "x"}, {"expect", "x"}, {"host", "\n"}, {"date", "now"}};
	for (u32 i = 0; i < sizeof pairs / sizeof *pairs; i++) {
		text("append "), text(pairs[i][0]), text(": "), number(add(f, pairs[i][0], pairs[i][1])), text("\n");
		fields_delete(f, "host", 4, small);
	}
	line("delete forbidden", small[0]), line("delete forbidden", small[1]);
	u32 copy = fields_clone(f);
	const u32 values[] = {(u32) "one", 3, (u32) "two", 3}, bad[] = {(u32) "ok", 2, (u32) "\n", 1};
	fields_set(f, "X-B", 3, values, 2, small), line("set", small[0]);
	fields_set(f, "y", 1, bad, 2, small), line("set bad", small[0]), line("set bad", small[1]);
	fields_set(f, "a", 1, values, 0, small), line("set none", small[0]);
	fields_delete(f, "V", 1, small), line("delete", small[0]);
	fields_delete(f, "nothing", 7, small), line("delete nothing", small[0]);
	fields_delete(f, "b a d", 5, small), line("delete bad", small[0]), line("delete bad", small[1]);
	text("changed\n"), entries(f, ""), text("copy\n"), entries(copy, "");
	fields_get(f, "x-B", 3, words), line("get", words[1]);
	fields_get(f, "no", 2, words), line("get nothing", words[1]);
	fields_get(f, "n o", 3, words), line("get bad", words[1]);
	line("has", fields_has(f, "C", 1)), line("has not", fields_has(f, "a", 1)), line("has bad", fields_has(f, "", 0));
	const u32 list[] = {(u32) "q", 1, (u32) "1", 1, (u32) "Q", 1, (u32) "2", 1}, worse[] = {(u32) "q", 1, (u32) "1", 1, (u32) "host", 4, (u32) "2", 1};
	from_list(list, 2, LARGE), line("from-list", LARGE[0]);
	if (!LARGE[0]) entries(WORD(LARGE, 4), "");
	from_list(worse, 2, LARGE), line("from-list forbidden", LARGE[0]), line("from-list forbidden", LARGE[4]);
	u32 response = new_response(f);
	u32 headers = response_headers(response);
	line("append to a response", add(headers, "z", "1"));
	const u32 codes[] = {0, 99, 100, 101, 200, 599, 600, 999, 1000, 65535};
	for (u32 i = 0; i < sizeof codes / sizeof *codes; i++) text("status "), line("", set_status(response, codes[i]));
	response_body(response, words), line("body", words[0] & 0xff);
	response_body(response, words), line("body again", words[0] & 0xff);
	u32 wrong = new_fields();
	add(wrong, "content-length", "many");
	response_body(new_response(wrong), words), line("body of a wrong length", words[0] & 0xff);
}

static void parts(void) {
	u32 r = new_request(new_fields());
	static const char *paths[] = {"/", "", "/a?b=c&d", "*", "/%20", "/a b", "/\n", "?q"};
	for (u32 i = 0; i < sizeof paths / sizeof *paths; i++) text("path "), text(paths[i]), line("", set_path(r, 1, paths[i], length(paths[i])));
	static const char *hosts[] = {"host", "host:80", "1.2.3.4:1", "[::1]", "[::1]:8080", "a-b.c_d", "", "host:x", "host:99999", "host:", "a b", "a/b", "[::1", "ho\nst"};
	for (u32 i = 0; i < sizeof hosts / sizeof *hosts; i++) text("authority "), text(hosts[i]), line("", set_authority(r, 1, hosts[i], length(hosts[i])));
	static const char *names[] = {"ws+x", "a b", "http"};
	for (u32 i = 0; i < 3; i++) text("scheme "), text(names[i]), line("", set_scheme(r, 1, 2, names[i], length(names[i])));
	for (u32 i = 0; i < 3; i++) text("method "), text(names[i]), line("", set_method(r, 9, names[i], length(names[i])));
	line("no path", set_path(r, 0, 0, 0)), line("no scheme", set_scheme(r, 0, 0, 0, 0)), line("no authority", set_authority(r, 0, 0, 0));
	outgoing_body(r, words), line("body", words[0] & 0xff);
	outgoing_body(r, words), line("body again", words[0] & 0xff);
}

// upstream sends a request to the authority in the header x-upstream, for the path in x-path, with a
// body if post is set.
static void upstream(u32 request, u32 post) {
	u32 headers = request_headers(request);
	u32 outgoing = new_fields();
	add(outgoing, "x-sent", "1"), add(outgoing, "user-agent", "web");
	if (post) add(outgoing, "trailer", "x-after");
	u32 r = new_request(outgoing);
	fields_get(headers, "x-upstream", 10, words);
	const u32 *value = (const u32 *)words[0];
	if (words[1]) set_authority(r, 1, (const char *)value[0], value[1]);
	fields_get(headers, "x-path", 6, words);
	value = (const u32 *)words[0];
	if (words[1]) set_path(r, 1, (const char *)value[0], value[1]);
	fields_get(headers, "x-scheme", 8, words);
	value = (const u32 *)words[0];
	set_scheme(r, 1, words[1] ? 2 : 0, (const char *)value[0], words[1] ? value[1] : 0);
	u32 body = 0;
	if (post) {
		set_method(r, 2, 0, 0);
		outgoing_body(r, words);
		body = words[1];
	}
	send(r, 0, 0, LARGE);
	line("handle", LARGE[0]);
	if (LARGE[0]) {
		line("error-code", LARGE[8]);
		return;
	}
	u32 future = WORD(LARGE, 8);
	if (post) {
		body_write(body, words);
		u32 to = words[1];
		for (u32 i = 0; i < 50; i++) write(to, said, 4096);
		drop_output(to);
		u32 trailers = new_fields();
		add(trailers, "x-after", "yes");
		line("finish", finish(body, trailers));
	}
	u32 p = response_subscribe(future);
	block(p), drop_pollable(p);
	response_get(future, LARGE);
	line("there", LARGE[0]), line("taken", LARGE[8]), line("failed", LARGE[16]);
	if (LARGE[16]) {
		line("error-code", LARGE[24]);
		return;
	}
	u32 response = WORD(LARGE, 24);
	response_get(future, LARGE), line("taken", LARGE[8]);
	line("status", response_status(response));
	entries(incoming_headers(response), "date");
	response_consume(response, words), line("consume", words[0] & 0xff);
	u32 in = words[1];
	response_consume(response, words), line("consume again", words[0] & 0xff);
	receive(in);
}

static void echo(u32 request, u32 out) {
	request_consume(request, words);
	u32 in = words[1];
	body_stream(in, words);
	u32 from = words[1];
	u32 headers = new_fields();
	add(headers, "content-type", "application/octet-stream"), add(headers, "trailer", "x-end");
	u32 body = start(out, 200, headers);
	body_write(body, words);
	u32 to = words[1];
	for (;;) {
		u8 *heap = next;
		blocking_read(from, 4096, words);
		if (words[0] & 0xff) break;
		if (write(to, (const char *)words[1], words[2])) break;
		next = heap;
	}
	drop_input(from), drop_output(to);
	u32 trailers = new_fields();
	add(trailers, "x-end", "yes");
	finish(body, trailers);
}

__attribute__((export_name("wasi:http/incoming-handler" VERSION "#handle"))) void handle(u32 request, u32 out) {
	request_path(request, words);
	const char *path = (const char *)words[1];
	u32 n = words[2];
	for (u32 i = 0; i < n; i++)
		if (path[i] == '?') n = i;
#define IS(s) (n == length(s) && !memcmp(path, s, n))
	if (IS("/about")) about(request), say(out);
	else if (IS("/fields")) fields(), say(out);
	else if (IS("/parts")) parts(), say(out);
	else if (IS("/echo")) echo(request, out);
	else if (IS("/get")) upstream(request, 0), say(out);
	else if (IS("/post")) upstream(request, 1), say(out);
	else if (IS("/none")) return;
	else if (IS("/trap")) __builtin_trap();
	else if (IS("/error")) outparam_set(out, 1, 36, 0, 0, 0, 0, 0, 0);
	else if (IS("/dropped")) drop_outparam(out);
	else if (IS("/empty")) finish(start(out, 204, new_fields()), 0);
	else if (IS("/nobody")) outparam_set(out, 0, new_response(new_fields()), 0, 0, 0, 0, 0, 0);
	else if (IS("/headers")) {
		u32 headers = new_fields();
		add(headers, "X-Twice", "1"), add(headers, "x-other", "o"), add(headers, "x-twice", "2"), add(headers, "server", "web"), add(headers, "set-cookie", "a=b; c"),
			add(headers, "set-cookie", "d"), add(headers, "x-bytes", "\xff\x80");
		finish(start(out, 418, headers), 0);
	} else if (IS("/204") || IS("/304") || IS("/zero")) {
		u32 headers = new_fields();
		if (IS("/zero")) add(headers, "content-length", "0");
		u32 body = start(out, IS("/204") ? 204 : IS("/304") ? 304 : 200, headers);
		body_write(body, words);
		u32 to = words[1];
		write(to, "some", 4);
		drop_output(to);
		finish(body, 0);
	} else if (IS("/unfinished") || IS("/abandoned") || IS("/short") || IS("/long") || IS("/late") || IS("/exact")) {
		u32 headers = new_fields();
		if (IS("/short")) add(headers, "content-length", "10");
		if (IS("/long")) add(headers, "content-length", "3");
		if (IS("/exact")) add(headers, "content-length", "4");
		u32 body = start(out, 200, headers);
		body_write(body, words);
		u32 to = words[1];
		u32 result = write(to, "some", 4);
		if (IS("/late")) __builtin_trap();
		if (IS("/unfinished")) return;
		u32 again = IS("/long") ? write(to, "s", 1) : 0;
		drop_output(to);
		if (IS("/abandoned")) drop_outgoing_body(body);
		else if (finish(body, 0) != (IS("/exact") ? 0 : 1 + 28)) __builtin_trap();
		if (IS("/long") && (result != 2 + 28 || again == 0)) __builtin_trap();
	} else if (IS("/child")) {
		request_consume(request, words);
		u32 body = words[1];
		body_stream(body, words);
		body_finish(body);
		say(out);
	} else if (IS("/child-output")) {
		u32 body = start(out, 200, new_fields());
		body_write(body, words);
		finish(body, 0);
	} else if (IS("/child-pollable")) {
		request_consume(request, words);
		body_stream(words[1], words);
		subscribe_input(words[1]);
		drop_input(words[1]);
		say(out);
	} else if (IS("/twice")) {
		outparam_set(out, 1, 36, 0, 0, 0, 0, 0, 0);
		outparam_set(out, 1, 36, 0, 0, 0, 0, 0, 0);
	} else if (IS("/moved")) {
		u32 f = new_fields();
		u32 response = new_response(f);
		entries(f, "");
		outparam_set(out, 0, response, 0, 0, 0, 0, 0, 0);
	} else if (IS("/hello")) text("hello\n"), say(out);
	else finish(start(out, 404, new_fields()), 0);
}
