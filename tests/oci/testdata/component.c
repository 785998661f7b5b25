// component.wasm is this program as a component of WASI 0.2, without an adapter:
//
//	clang --target=wasm32 -mbulk-memory -Os -nostdlib -Wl,--no-entry -Wl,--strip-all -o core.wasm component.c
//	wasm-tools component embed wit core.wasm -o embedded.wasm    (world: include wasi:cli/command@0.2.12)
//	wasm-tools component new embedded.wasm -o component.wasm
//
// wasm-tools is 1.262.0, the WIT packages are those of the crate wasip2 that tests/tools-components pins.
//
//	say WORD...            prints the words
//	exit CODE              ends with a code
//	trap                   traps
//	serve                  answers each TCP connection to port 8080 with what it sends first, one by HTTP with "ok"
//	env NAME               prints a variable
//	cat [CODE]             writes its input to its output, and ends with a code
//	echo WORD              prints a word without a new line
//	lines N                prints so many lines
//	sleep                  says that it is ready, and waits for a day
//	terminals              prints which of its streams are a terminal
//	read PATH              prints a file, or its error-code; ends with 1 then
//	write PATH             makes a file, and prints the error-code if it cannot; ends with 1 then
//	fill MIB               grows its memory by that much and touches it; ends with 3 if it is refused
//	take MIB               the same; traps if it is refused
//	fetch HOST PORT WORD   looks up a name, sends a word by TCP, prints the answer
//	send HOST PORT WORD    the same by UDP
//	udp                    answers each datagram to port 8080 with what it holds
//	wait clock             waits for a day, without end for a datagram, or for a connection to an address that
//	wait udp               is "A.B.C.D"
//	wait connect ADDRESS PORT
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name))) extern
#define VERSION "@0.2.12"
#define STREAMS "wasi:io/streams" VERSION
#define FILES "wasi:filesystem/types" VERSION
#define TCP "wasi:sockets/tcp" VERSION
#define UDP "wasi:sockets/udp" VERSION
#define NAMES "wasi:sockets/ip-name-lookup" VERSION
#define ADDRESS u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32
// IPV4 is an address as it is passed: a pointer to four octets, and a port.
#define IPV4(octets, port) 0, port, (octets)[0], (octets)[1], (octets)[2], (octets)[3], 0, 0, 0, 0, 0, 0

IMPORT("wasi:cli/environment" VERSION, "get-arguments") void get_arguments(u32 *);
IMPORT("wasi:cli/environment" VERSION, "get-environment") void get_environment(u32 *);
IMPORT("wasi:cli/exit" VERSION, "exit-with-code") void exit_with_code(u32);
IMPORT("wasi:cli/stdin" VERSION, "get-stdin") u32 get_stdin(void);
IMPORT("wasi:cli/stdout" VERSION, "get-stdout") u32 get_stdout(void);
IMPORT("wasi:cli/terminal-stdin" VERSION, "get-terminal-stdin") void terminal_stdin(u32 *);
IMPORT("wasi:cli/terminal-stdout" VERSION, "get-terminal-stdout") void terminal_stdout(u32 *);
IMPORT("wasi:cli/terminal-stderr" VERSION, "get-terminal-stderr") void terminal_stderr(u32 *);
IMPORT("wasi:clocks/monotonic-clock" VERSION, "subscribe-duration") u32 subscribe_duration(u64);
IMPORT("wasi:io/poll" VERSION, "[method]pollable.block") void block(u32);
IMPORT("wasi:io/poll" VERSION, "[resource-drop]pollable") void drop_pollable(u32);
IMPORT(STREAMS, "[method]input-stream.blocking-read") void blocking_read(u32, u64, u32 *);
IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush") void blocking_write(u32, const void *, u32, u32 *);
IMPORT(STREAMS, "[resource-drop]input-stream") void drop_input(u32);
IMPORT(STREAMS, "[resource-drop]output-stream") void drop_output(u32);
IMPORT("wasi:filesystem/preopens" VERSION, "get-directories") void get_directories(u32 *);
IMPORT(FILES, "[method]descriptor.open-at") void open_at(u32, u32, const char *, u32, u32, u32, u32 *);
IMPORT(FILES, "[method]descriptor.read") void read_(u32, u64, u64, u32 *);
IMPORT(FILES, "[method]descriptor.write") void write_(u32, const void *, u32, u64, u64 *);
IMPORT("wasi:sockets/instance-network" VERSION, "instance-network") u32 instance_network(void);
IMPORT("wasi:sockets/tcp-create-socket" VERSION, "create-tcp-socket") void create_tcp(u32, u32 *);
IMPORT("wasi:sockets/udp-create-socket" VERSION, "create-udp-socket") void create_udp(u32, u32 *);
IMPORT(TCP, "[method]tcp-socket.start-bind") void start_bind(u32, u32, ADDRESS, u8 *);
IMPORT(TCP, "[method]tcp-socket.finish-bind") void finish_bind(u32, u8 *);
IMPORT(TCP, "[method]tcp-socket.start-listen") void start_listen(u32, u8 *);
IMPORT(TCP, "[method]tcp-socket.finish-listen") void finish_listen(u32, u8 *);
IMPORT(TCP, "[method]tcp-socket.start-connect") void start_connect(u32, u32, ADDRESS, u8 *);
IMPORT(TCP, "[method]tcp-socket.finish-connect") void finish_connect(u32, u32 *);
IMPORT(TCP, "[method]tcp-socket.accept") void accept(u32, u32 *);
IMPORT(TCP, "[method]tcp-socket.subscribe") u32 subscribe(u32);
IMPORT(TCP, "[resource-drop]tcp-socket") void drop_tcp(u32);
IMPORT(UDP, "[method]udp-socket.start-bind") void udp_start_bind(u32, u32, ADDRESS, u8 *);
IMPORT(UDP, "[method]udp-socket.finish-bind") void udp_finish_bind(u32, u8 *);
IMPORT(UDP, "[method]udp-socket.stream") void udp_stream(u32, u32, ADDRESS, u32 *);
IMPORT(UDP, "[method]incoming-datagram-stream.receive") void receive(u32, u64, u32 *);
IMPORT(UDP, "[method]incoming-datagram-stream.subscribe") u32 subscribe_incoming(u32);
IMPORT(UDP, "[method]outgoing-datagram-stream.check-send") void check_send(u32, u64 *);
IMPORT(UDP, "[method]outgoing-datagram-stream.send") void send(u32, const void *, u32, u64 *);
IMPORT(NAMES, "resolve-addresses") void resolve_addresses(u32, const char *, u32, u32 *);
IMPORT(NAMES, "[method]resolve-address-stream.resolve-next-address") void resolve_next(u32, u16 *);
IMPORT(NAMES, "[method]resolve-address-stream.subscribe") u32 subscribe_names(u32);

extern u8 __heap_base;
static u8 *next = &__heap_base;

__attribute__((export_name("cabi_realloc"))) void *cabi_realloc(void *old, u32 old_size, u32 align, u32 size) {
	next = (u8 *)(((u32)next + align - 1) & -align);
	u8 *at = next;
	next += size;
	while ((u32)next > __builtin_wasm_memory_size(0) << 16)
		__builtin_wasm_memory_grow(0, 1);
	return at;
}

// WOULD_BLOCK is the error-code of sockets.
#define WOULD_BLOCK 8

struct text { const char *at; u32 size; };

static u32 words[8];
static u64 big[2];
static u8 small[2];

static void print(struct text t) {
	for (u32 n; t.size; t.at += n, t.size -= n)
		n = t.size < 4096 ? t.size : 4096, blocking_write(get_stdout(), t.at, n, words);
}
static struct text text(const char *s) {
	u32 n = 0;
	while (s[n]) n++;
	return (struct text){s, n};
}
static void say(const char *s) { print(text(s)); }
static int same(struct text a, struct text b) {
	for (u32 i = 0; i < a.size && i < b.size; i++)
		if (a.at[i] != b.at[i]) return 0;
	return a.size == b.size;
}
static int is(struct text t, const char *s) { return same(t, text(s)); }
// number reads digits up to one that is none, and moves behind it.
static u32 number(struct text *t) {
	u32 n = 0;
	for (; t->size; t->at++, t->size--) {
		if (*t->at < '0' || *t->at > '9') return t->at++, t->size--, n;
		n = 10 * n + *t->at - '0';
	}
	return n;
}
static void print_number(u32 n) {
	char digits[10];
	u32 at = 10;
	do digits[--at] = '0' + n % 10; while (n /= 10);
	print((struct text){digits + at, 10 - at});
}

// must ends the program for an error of sockets.
static void must(const void *answer) {
	const u8 *a = answer;
	if (a[0]) exit_with_code(100 + a[1]);
}

static u32 listener(u32 net) {
	create_tcp(0, words);
	u32 s = words[1];
	u8 any[4] = {0};
	start_bind(s, net, IPV4(any, 8080), small), must(small);
	finish_bind(s, small), must(small);
	start_listen(s, small), must(small);
	finish_listen(s, small), must(small);
	return s;
}

static void await(u32 pollable) { block(pollable), drop_pollable(pollable); }

static void serve(void) {
	u32 s = listener(instance_network());
	say("listening\n");
	for (;;) {
		await(subscribe(s));
		u8 *heap = next;
		accept(s, words);
		if (words[0] & 0xff) { // it was asked to stop
			say("stopped\n");
			exit_with_code(0);
		}
		u32 peer = words[1], in = words[2], out = words[3];
		blocking_read(in, 1000, words);
		static const char page[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n";
		struct text said = {(void *)words[1], words[2]};
		if (words[0] & 0xff) ;
		else if (said.size > 4 && is((struct text){said.at, 4}, "GET ")) blocking_write(out, page, sizeof page - 1, words);
		else blocking_write(out, said.at, said.size, words);
		drop_input(in), drop_output(out), drop_tcp(peer);
		next = heap;
	}
}

// lookup is the first IPv4 address that a name has.
static const u8 *lookup(u32 net, struct text name) {
	static u16 answer[10];
	resolve_addresses(net, name.at, name.size, words);
	if (words[0] & 0xff) exit_with_code(100 + (words[1] & 0xff));
	const u8 *a = (u8 *)answer;
	for (u32 stream = words[1];;) {
		await(subscribe_names(stream));
		resolve_next(stream, answer);
		if (a[0] && a[2] == WOULD_BLOCK) continue;
		if (a[0]) exit_with_code(100 + a[2]);
		if (!a[2]) exit_with_code(99);
		if (!a[4]) return a + 6;
	}
}

static u32 connected(u32 net, const u8 *address, u32 port) {
	create_tcp(0, words);
	u32 s = words[1];
	start_connect(s, net, IPV4(address, port), small), must(small);
	say("connecting\n");
	do await(subscribe(s)), finish_connect(s, words);
	while ((words[0] & 0xff) && (words[1] & 0xff) == WOULD_BLOCK);
	if (words[0] & 0xff) exit_with_code(100 + (words[1] & 0xff));
	return s;
}

static void fetch(struct text host, struct text port, struct text word) {
	u32 net = instance_network();
	const u8 *address = lookup(net, host);
	connected(net, address, number(&port));
	u32 in = words[1], out = words[2];
	blocking_write(out, word.at, word.size, words);
	blocking_read(in, 1000, words);
	print((struct text){(void *)words[1], words[2]});
	say("\n");
}

struct datagrams { u32 in, out; };

static struct datagrams datagrams(u32 net, u32 port) {
	u8 any[4] = {0};
	create_udp(0, words);
	u32 s = words[1];
	udp_start_bind(s, net, IPV4(any, port), small), must(small);
	udp_finish_bind(s, small), must(small);
	udp_stream(s, 0, IPV4(any, 0), words);
	if (words[0] & 0xff) exit_with_code(100 + (words[1] & 0xff));
	return (struct datagrams){words[1], words[2]};
}

struct remote { u8 version[4]; u16 port; u8 octets[26]; };
struct incoming { struct text data; struct remote from; };
struct outgoing { struct text data; u8 to_is_given[4]; struct remote to; };

static void send_one(struct datagrams d, struct text data, struct remote to) {
	struct outgoing o = {data, {1}, to};
	check_send(d.out, big);
	send(d.out, &o, 1, big);
	if (big[0] & 0xff) exit_with_code(100 + (big[1] & 0xff));
}

static struct incoming receive_one(struct datagrams d) {
	for (;;) {
		await(subscribe_incoming(d.in));
		receive(d.in, 1, words);
		if (words[0] & 0xff) exit_with_code(100 + (words[1] & 0xff));
		if (words[2]) return *(struct incoming *)words[1];
	}
}

static void send_word(struct text host, struct text port, struct text word) {
	u32 net = instance_network();
	const u8 *a = lookup(net, host);
	struct remote to = {{0}, number(&port), {a[0], a[1], a[2], a[3]}};
	struct datagrams d = datagrams(net, 0);
	send_one(d, word, to);
	print(receive_one(d).data);
	say("\n");
}

static void serve_datagrams(void) {
	struct datagrams d = datagrams(instance_network(), 8080);
	say("listening\n");
	for (u8 *heap = next;; next = heap) {
		struct incoming one = receive_one(d);
		send_one(d, one.data, one.from);
	}
}

static void wait_for(struct text *args, u32 n) {
	if (is(args[0], "clock")) {
		say("waiting\n");
		await(subscribe_duration(86400000000000));
	} else if (is(args[0], "udp")) {
		struct datagrams d = datagrams(instance_network(), 8080);
		say("waiting\n");
		receive_one(d);
	} else if (n > 2) {
		u8 address[4];
		for (u32 i = 0; i < 4; i++) address[i] = number(&args[1]);
		connected(instance_network(), address, number(&args[2]));
	}
}

static const char *const codes[] = {"access", "would-block", "already", "bad-descriptor", "busy", "deadlock", "quota", "exist",
	"file-too-large", "illegal-byte-sequence", "in-progress", "interrupted", "invalid", "io", "is-directory", "loop",
	"too-many-links", "message-size", "name-too-long", "no-device", "no-entry", "no-lock", "insufficient-memory",
	"insufficient-space", "not-directory", "not-empty", "not-recoverable", "unsupported", "no-tty", "no-such-device",
	"overflow", "not-permitted", "pipe", "read-only", "invalid-seek", "text-file-busy", "cross-device"};

// refused prints an error-code of files, and ends the program.
static void refused(u32 code) {
	say(codes[code & 0xff]), say("\n");
	exit_with_code(1);
}

// opened opens a file by its absolute path.
static u32 opened(struct text path, u32 how, u32 flags) {
	get_directories(words);
	u32 root = *(u32 *)words[0];
	open_at(root, 1, path.at + 1, path.size - 1, how, flags, words);
	if (words[0] & 0xff) refused(words[1]);
	return words[1];
}

static void read_file(struct text path) {
	read_(opened(path, 0, 1), 1 << 16, 0, words);
	if (words[0] & 0xff) refused(words[1]);
	print((struct text){(void *)words[1], words[2]});
}

static void write_file(struct text path) {
	write_(opened(path, 1, 2), "written\n", 8, 0, big);
	if (big[0] & 0xff) refused(big[1]);
}

static void environment(struct text name) {
	get_environment(words);
	struct { struct text name, value; } *all = (void *)words[0];
	for (u32 n = words[1], i = 0; i < n; i++)
		if (same(all[i].name, name)) print(all[i].value);
	say("\n");
}

static void lines(u32 n) {
	for (u32 i = 0; i < n; i++) say("line "), print_number(i), say("\n");
}

static void cat(void) {
	u32 in = get_stdin();
	for (u8 *heap = next;; next = heap) {
		blocking_read(in, 4096, words);
		if (words[0] & 0xff) return;
		print((struct text){(void *)words[1], words[2]});
	}
}

static void terminals(void) {
	terminal_stdin(words), say(words[0] & 0xff ? "input " : "no input ");
	terminal_stdout(words), say(words[0] & 0xff ? "output " : "no output ");
	terminal_stderr(words), say(words[0] & 0xff ? "error\n" : "no error\n");
}

static void fill(u32 mib, int traps) {
	for (u32 i = 0; i < mib; i++) {
		u32 page = __builtin_wasm_memory_grow(0, 16);
		if (page == -1u) {
			if (traps) __builtin_trap();
			print_number(i), say(" MiB, then no more\n");
			exit_with_code(3);
		}
		for (u32 at = 0; at < 1 << 20; at += 4096) ((volatile u8 *)(page << 16))[at] = 1;
	}
	print_number(mib), say(" MiB\n");
}

__attribute__((export_name("wasi:cli/run@0.2.12#run"))) u32 run(void) {
	get_arguments(words);
	struct text *args = (void *)words[0];
	u32 n = words[1];
	if (n < 2) return 1;
	struct text what = args[1];
	if (is(what, "say")) {
		for (u32 i = 2; i < n; i++) print(args[i]), say(i + 1 < n ? " " : "\n");
	} else if (is(what, "exit") && n > 2) exit_with_code(number(&args[2]));
	else if (is(what, "trap")) __builtin_trap();
	else if (is(what, "serve")) serve();
	else if (is(what, "env") && n > 2) environment(args[2]);
	else if (is(what, "cat")) {
		cat();
		if (n > 2) exit_with_code(number(&args[2]));
	} else if (is(what, "echo") && n > 2) print(args[2]);
	else if (is(what, "lines") && n > 2) lines(number(&args[2]));
	else if (is(what, "sleep")) say("ready\n"), await(subscribe_duration(86400000000000));
	else if (is(what, "terminals")) terminals();
	else if (is(what, "read") && n > 2) read_file(args[2]);
	else if (is(what, "write") && n > 2) write_file(args[2]);
	else if (is(what, "fill") && n > 2) fill(number(&args[2]), 0);
	else if (is(what, "take") && n > 2) fill(number(&args[2]), 1);
	else if (is(what, "fetch") && n > 4) fetch(args[2], args[3], args[4]);
	else if (is(what, "send") && n > 4) send_word(args[2], args[3], args[4]);
	else if (is(what, "udp")) serve_datagrams();
	else if (is(what, "wait") && n > 2) wait_for(args + 2, n - 2);
	else return 1;
	return 0;
}
