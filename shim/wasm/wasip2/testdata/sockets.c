// A command of WASI 0.2 in lowered form that talks to itself over sockets and does what is wrong in
// each state. Its output under wasmtime is sockets.txt:
//
//	clang --target=wasm32 -O1 -nostdlib -Wl,--no-entry -o core.wasm sockets.c
//	wasm-tools component embed --all-features wit core.wasm -o embedded.wasm    (world: include wasi:cli/command@0.2.9)
//	wasm-tools component new embedded.wasm -o sockets.wasm
//	wasmtime run -S inherit-network,allow-ip-name-lookup,network-error-code sockets.wasm
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name))) extern
#define VERSION "@0.2.9"
#define STREAMS "wasi:io/streams" VERSION
#define NETWORK "wasi:sockets/network" VERSION
#define TCP "wasi:sockets/tcp" VERSION
#define UDP "wasi:sockets/udp" VERSION
#define LOOKUP "wasi:sockets/ip-name-lookup" VERSION
#define T "[method]tcp-socket."
#define U "[method]udp-socket."
// ADDRESS are a discriminant and the numbers of an ip-socket-address.
#define ADDRESS u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32

IMPORT("wasi:cli/stdout" VERSION, "get-stdout") u32 get_stdout(void);
IMPORT("wasi:io/poll" VERSION, "[method]pollable.block") void block(u32);
IMPORT("wasi:io/poll" VERSION, "[method]pollable.ready") u32 ready(u32);
IMPORT("wasi:io/poll" VERSION, "[resource-drop]pollable") void drop_pollable(u32);
IMPORT("wasi:io/error" VERSION, "[resource-drop]error") void drop_error(u32);
IMPORT(STREAMS, "[method]input-stream.blocking-read") void blocking_read(u32, u64, u32 *);
IMPORT(STREAMS, "[method]input-stream.read") void read_(u32, u64, u32 *);
IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush") void blocking_write(u32, const void *, u32, u32 *);
IMPORT(STREAMS, "[method]output-stream.check-write") void check_write(u32, u64 *);
IMPORT(STREAMS, "[resource-drop]input-stream") void drop_input(u32);
IMPORT(STREAMS, "[resource-drop]output-stream") void drop_output(u32);
IMPORT("wasi:sockets/instance-network" VERSION, "instance-network") u32 instance_network(void);
IMPORT(NETWORK, "network-error-code") void network_code(u32, u8 *);
IMPORT("wasi:sockets/tcp-create-socket" VERSION, "create-tcp-socket") void create_tcp(u32, u32 *);
IMPORT("wasi:sockets/udp-create-socket" VERSION, "create-udp-socket") void create_udp(u32, u32 *);
IMPORT(TCP, T "start-bind") void start_bind(u32, u32, ADDRESS, u8 *);
IMPORT(TCP, T "finish-bind") void finish_bind(u32, u8 *);
IMPORT(TCP, T "start-connect") void start_connect(u32, u32, ADDRESS, u8 *);
IMPORT(TCP, T "finish-connect") void finish_connect(u32, u32 *);
IMPORT(TCP, T "start-listen") void start_listen(u32, u8 *);
IMPORT(TCP, T "finish-listen") void finish_listen(u32, u8 *);
IMPORT(TCP, T "accept") void accept(u32, u32 *);
IMPORT(TCP, T "local-address") void local_address(u32, u32 *);
IMPORT(TCP, T "remote-address") void remote_address(u32, u32 *);
IMPORT(TCP, T "is-listening") u32 is_listening(u32);
IMPORT(TCP, T "address-family") u32 address_family(u32);
IMPORT(TCP, T "set-listen-backlog-size") void set_backlog(u32, u64, u8 *);
IMPORT(TCP, T "keep-alive-enabled") void keep_alive(u32, u8 *);
IMPORT(TCP, T "set-keep-alive-enabled") void set_keep_alive(u32, u32, u8 *);
IMPORT(TCP, T "keep-alive-idle-time") void idle_time(u32, u64 *);
IMPORT(TCP, T "set-keep-alive-idle-time") void set_idle_time(u32, u64, u8 *);
IMPORT(TCP, T "keep-alive-interval") void interval(u32, u64 *);
IMPORT(TCP, T "set-keep-alive-interval") void set_interval(u32, u64, u8 *);
IMPORT(TCP, T "keep-alive-count") void count(u32, u32 *);
IMPORT(TCP, T "set-keep-alive-count") void set_count(u32, u32, u8 *);
IMPORT(TCP, T "hop-limit") void hop_limit(u32, u8 *);
IMPORT(TCP, T "set-hop-limit") void set_hop_limit(u32, u32, u8 *);
IMPORT(TCP, T "receive-buffer-size") void receive_buffer(u32, u64 *);
IMPORT(TCP, T "set-receive-buffer-size") void set_receive_buffer(u32, u64, u8 *);
IMPORT(TCP, T "set-send-buffer-size") void set_send_buffer(u32, u64, u8 *);
IMPORT(TCP, T "subscribe") u32 subscribe_tcp(u32);
IMPORT(TCP, T "shutdown") void shutdown(u32, u32, u8 *);
IMPORT(TCP, "[resource-drop]tcp-socket") void drop_tcp(u32);
IMPORT(UDP, U "start-bind") void udp_start_bind(u32, u32, ADDRESS, u8 *);
IMPORT(UDP, U "finish-bind") void udp_finish_bind(u32, u8 *);
IMPORT(UDP, U "stream") void udp_stream(u32, u32, ADDRESS, u32 *);
IMPORT(UDP, U "local-address") void udp_local_address(u32, u32 *);
IMPORT(UDP, U "remote-address") void udp_remote_address(u32, u32 *);
IMPORT(UDP, U "set-unicast-hop-limit") void udp_set_hop_limit(u32, u32, u8 *);
IMPORT(UDP, U "unicast-hop-limit") void udp_hop_limit(u32, u8 *);
IMPORT(UDP, U "subscribe") u32 subscribe_udp(u32);
IMPORT(UDP, "[resource-drop]udp-socket") void drop_udp(u32);
IMPORT(UDP, "[method]incoming-datagram-stream.receive") void receive(u32, u64, u32 *);
IMPORT(UDP, "[method]incoming-datagram-stream.subscribe") u32 subscribe_incoming(u32);
IMPORT(UDP, "[resource-drop]incoming-datagram-stream") void drop_incoming(u32);
IMPORT(UDP, "[method]outgoing-datagram-stream.check-send") void check_send(u32, u64 *);
IMPORT(UDP, "[method]outgoing-datagram-stream.send") void send(u32, void *, u32, u64 *);
IMPORT(UDP, "[resource-drop]outgoing-datagram-stream") void drop_outgoing(u32);
IMPORT(LOOKUP, "resolve-addresses") void resolve(u32, const char *, u32, u32 *);
IMPORT(LOOKUP, "[method]resolve-address-stream.resolve-next-address") void next_address(u32, u8 *);
IMPORT(LOOKUP, "[method]resolve-address-stream.subscribe") u32 subscribe_addresses(u32);
IMPORT(LOOKUP, "[resource-drop]resolve-address-stream") void drop_addresses(u32);

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

static u32 out, net;
static u8 small[24];
static u32 words[16];
static u64 big[4];

static u32 length(const char *s) {
	u32 n = 0;
	while (s[n]) n++;
	return n;
}
static void print(const char *s, u32 n) {
	u32 result[3];
	blocking_write(out, s, n, result);
}
static void say(const char *s) { print(s, length(s)); }
static void number(u64 n) {
	char digits[20];
	u32 at = 20;
	do digits[--at] = '0' + n % 10; while (n /= 10);
	say(" ");
	print(digits + at, 20 - at);
}
static void line(const char *what) { say("\n"), say(what), say(":"); }

static const char *codes[] = {"unknown", "access-denied", "not-supported", "invalid-argument", "out-of-memory", "timeout",
	"concurrency-conflict", "not-in-progress", "would-block", "invalid-state", "new-socket-limit", "address-not-bindable",
	"address-in-use", "remote-unreachable", "connection-refused", "connection-reset", "connection-aborted",
	"datagram-too-large", "name-unresolvable", "temporary-resolver-failure", "permanent-resolver-failure"};

// result says what a function answered: its discriminant, and where an error-code is.
static int result(void *answer, u32 payload) {
	u8 *at = answer;
	say(" ");
	say(at[0] ? codes[at[payload]] : "ok");
	return !at[0];
}
// flow is result for streams.
static int flow(void *answer, u32 payload) {
	u8 *at = answer, code[2];
	if (!at[0]) return say(" ok"), 1;
	if (at[payload]) return say(" closed"), 0;
	u32 error = *(u32 *)(at + payload + 4);
	network_code(error, code);
	drop_error(error);
	say(" failed: "), say(code[0] ? codes[code[1]] : "no code");
	return 0;
}

#define V4(a, b, c, d, port) 0, port, a, b, c, d, 0, 0, 0, 0, 0, 0
#define V6(a, h, port) 1, port, 0, a, 0, 0, 0, 0, 0, 0, h, 0
#define MAPPED 1, 80, 0, 0, 0, 0, 0, 0, 0xffff, 0x7f00, 1, 0
#define DO(f, ...) (f(__VA_ARGS__, small), result(small, 1))
#define DO4(f, ...) (f(__VA_ARGS__, words), result(words, 4))
#define DO8(f, ...) (f(__VA_ARGS__, big), result(big, 8))

static u16 port(u32 *answer) { return ((u16 *)answer)[4]; } // of an address behind a result
static u32 tcp(u32 family) { create_tcp(family, words); return words[1]; }
static u32 udp(u32 family) { create_udp(family, words); return words[1]; }
static void wait(u32 pollable) { block(pollable), drop_pollable(pollable); }

// wrong calls everything of a socket that is not for its state.
static void wrong(const char *state, u32 s, int starts) {
	line(state);
	if (starts & 1) DO(start_bind, s, net, V4(127, 0, 0, 1, 0));
	if (starts & 2) DO(start_connect, s, net, V4(127, 0, 0, 1, 1));
	if (starts & 4) DO(start_listen, s);
	if (starts & 8) DO(finish_bind, s);
	if (starts & 16) DO4(finish_connect, s);
	if (starts & 32) DO(finish_listen, s);
	if (starts & 64) DO4(accept, s);
	DO4(local_address, s), DO4(remote_address, s);
	if (starts & 128) DO(shutdown, s, 2);
	number(is_listening(s));
}

static void options(u32 s, u32 family) {
	line("options");
	number(address_family(s));
	DO(set_backlog, s, 0), DO(set_backlog, s, 7);
	DO(keep_alive, s), number(small[1]), DO(set_keep_alive, s, 1), DO(keep_alive, s), number(small[1]);
	DO(set_idle_time, s, 0), DO(set_idle_time, s, 1), DO8(idle_time, s), number(big[1]);
	DO(set_idle_time, s, -1), DO8(idle_time, s), number(big[1]);
	DO(set_interval, s, 0), DO(set_interval, s, 2500000000), DO8(interval, s), number(big[1]);
	DO(set_count, s, 0), DO(set_count, s, 5), DO4(count, s), number(words[1]);
	DO(set_count, s, -1), DO4(count, s), number(words[1]);
	DO(set_hop_limit, s, 0), DO(set_hop_limit, s, 42), DO(hop_limit, s), number(small[1]);
	DO(set_receive_buffer, s, 0), DO(set_receive_buffer, s, 65536), DO8(receive_buffer, s), number(big[1]);
	DO(set_send_buffer, s, 0), DO(set_send_buffer, s, -1);
}

static void connection(u32 family) {
	u32 s = tcp(family), c = tcp(family), in, output, peer, from, to, p;
	options(s, family);
	wrong("unbound", s, 64 | 128 | 4 | 8 | 16 | 32);
	line("bind");
	DO(start_bind, s, net, V4(127, 0, 0, 1, 0));
	if (family) DO(start_bind, s, net, V6(0, 1, 0));
	wrong("binding", s, 1 | 2 | 4 | 16 | 32 | 64 | 128);
	line("bound"), DO(finish_bind, s), DO(finish_bind, s);
	DO4(local_address, s), number(words[1] & 0xff), number(port(words) > 0);
	u32 at = port(words);
	wrong("states", s, 1 | 8 | 16 | 32 | 64 | 128);
	line("listen"), DO(start_listen, s);
	wrong("listening soon", s, 1 | 2 | 4 | 8 | 16 | 64 | 128);
	line("listen"), DO(finish_listen, s), DO(finish_listen, s), DO(set_backlog, s, 9);
	wrong("listening", s, 1 | 2 | 4 | 8 | 16 | 32 | 64 | 128);
	p = subscribe_tcp(s), number(ready(p)), drop_pollable(p);
	line("connect");
	if (family) DO(start_connect, c, net, V6(0, 1, at));
	else DO(start_connect, c, net, V4(127, 0, 0, 1, at));
	wait(subscribe_tcp(c));
	if (!DO4(finish_connect, c)) return;
	in = words[1], output = words[2];
	wrong("connected", c, 1 | 2 | 4 | 8 | 16 | 32 | 64);
	line("accept"), wait(subscribe_tcp(s));
	if (!DO4(accept, s)) return;
	peer = words[1], from = words[2], to = words[3];
	DO(keep_alive, peer), number(small[1]), DO(hop_limit, peer), number(small[1]), DO4(count, peer), number(words[1]);
	DO4(remote_address, c), number(port(words) == at);
	DO4(local_address, c), at = port(words), DO4(remote_address, peer), number(port(words) == at);
	line("talk");
	read_(from, 100, words), flow(words, 4), number(words[2]);
	check_write(output, big), flow(big, 8), number(big[1] > 0);
	blocking_write(output, "hello", 5, words), flow(words, 4);
	blocking_read(from, 100, words), flow(words, 4), say(" "), print((char *)words[1], words[2]);
	blocking_write(to, "answer", 6, words), flow(words, 4);
	blocking_read(in, 100, words), flow(words, 4), say(" "), print((char *)words[1], words[2]);
	line("shutdown"), DO(shutdown, c, 1);
	blocking_write(output, "more", 4, words), flow(words, 4);
	blocking_read(from, 100, words), flow(words, 4);
	read_(from, 100, words), flow(words, 4);
	blocking_write(to, "last", 4, words), flow(words, 4);
	blocking_read(in, 100, words), flow(words, 4), say(" "), print((char *)words[1], words[2]);
	DO(shutdown, peer, 0), read_(from, 100, words), flow(words, 4);
	drop_input(from), drop_output(to), drop_tcp(peer);
	blocking_read(in, 100, words), flow(words, 4);
	drop_input(in), drop_output(output), drop_tcp(c), drop_tcp(s);
}

static void refused(void) {
	u32 s = tcp(0);
	line("refused"), DO(start_bind, s, net, V4(127, 0, 0, 1, 0)), DO(finish_bind, s), DO4(local_address, s);
	u32 at = port(words), c = tcp(0);
	DO(start_connect, c, net, V4(127, 0, 0, 1, at)), wait(subscribe_tcp(c)), DO4(finish_connect, c);
	DO4(finish_connect, c), DO(start_connect, c, net, V4(127, 0, 0, 1, at));
	drop_tcp(c), drop_tcp(s);
	line("addresses"), s = tcp(0);
	DO(start_bind, s, net, V6(0, 1, 0)), DO(start_bind, s, net, V4(224, 0, 0, 1, 0)), DO(start_bind, s, net, V4(255, 255, 255, 255, 0));
	DO(start_bind, s, net, V4(192, 0, 2, 1, 0)), DO(start_connect, s, net, V4(127, 0, 0, 1, 0)), DO(start_connect, s, net, V4(0, 0, 0, 0, 80));
	DO(start_connect, s, net, V6(0, 1, 80)), DO(start_connect, s, net, V4(224, 0, 0, 1, 80));
	drop_tcp(s), s = tcp(1);
	DO(start_bind, s, net, MAPPED), DO(start_connect, s, net, MAPPED), DO(start_connect, s, net, V6(0, 0, 80)), DO(start_connect, s, net, V6(0xff02, 1, 80));
	drop_tcp(s), s = tcp(0), DO(start_bind, s, net, V4(127, 0, 0, 1, 0)), DO(finish_bind, s), DO4(local_address, s), at = port(words);
	DO(start_listen, s), DO(finish_listen, s), c = tcp(0), DO(start_bind, c, net, V4(127, 0, 0, 1, at));
	drop_tcp(c), drop_tcp(s);
}

typedef struct {
	const char *data;
	u32 size;
	u32 some, family;
	u16 port;
	u8 ip[26];
} datagram;
typedef struct {
	const char *data;
	u32 size;
	u32 family;
	u16 port;
	u8 ip[26];
} arrival;

static u8 large[70000];

static void messages(void) {
	u32 a = udp(0), b = udp(0), in, o, from, to;
	line("udp"), DO4(udp_local_address, a), DO4(udp_remote_address, a), DO(udp_finish_bind, a);
	udp_stream(a, 0, V4(0, 0, 0, 0, 0), words), result(words, 4);
	DO(udp_set_hop_limit, a, 0), DO(udp_set_hop_limit, a, 9), DO(udp_hop_limit, a), number(small[1]);
	DO(udp_start_bind, a, net, V6(0, 1, 0)), DO(udp_start_bind, a, net, V4(127, 0, 0, 1, 0)), DO(udp_start_bind, a, net, V4(127, 0, 0, 1, 0));
	DO4(udp_local_address, a), DO(udp_finish_bind, a), DO(udp_finish_bind, a), DO(udp_start_bind, a, net, V4(127, 0, 0, 1, 0));
	DO4(udp_local_address, a);
	u32 at = port(words);
	DO(udp_start_bind, b, net, V4(127, 0, 0, 1, 0)), DO(udp_finish_bind, b), DO4(udp_local_address, b);
	u32 bt = port(words);
	line("streams"), udp_stream(a, 0, V4(0, 0, 0, 0, 0), words), result(words, 4), in = words[1], o = words[2];
	udp_stream(b, 1, V4(127, 0, 0, 1, 0), words), result(words, 4);
	udp_stream(b, 1, V4(0, 0, 0, 0, 9), words), result(words, 4);
	udp_stream(b, 1, V4(127, 0, 0, 1, at), words), result(words, 4), from = words[1], to = words[2];
	DO4(udp_remote_address, b), number(port(words) == at), DO4(udp_remote_address, a);
	line("nothing"), receive(in, 10, words), result(words, 4), number(words[2]);
	line("send"), DO8(check_send, to), number(big[1] > 1);
	datagram d[2] = {{"one", 3, 0}, {"two", 3, 1, 0, at, {127, 0, 0, 1}}};
	DO8(send, to, d, 2), number(big[1]);
	wait(subscribe_incoming(in)), receive(in, 10, words), result(words, 4), number(words[2]);
	arrival *got = (arrival *)words[1];
	for (u32 i = 0; i < words[2]; i++) say(" "), print(got[i].data, got[i].size), number(got[i].port == bt), number(got[i].ip[0]);
	line("wrong"), DO8(check_send, to), d[1].port = 9, DO8(send, to, d + 1, 1), DO8(check_send, o), DO8(send, o, d, 1);
	DO8(check_send, o), d[1].port = 0, DO8(send, o, d + 1, 1), DO8(check_send, o), DO8(send, o, d, 0), number(big[1]);
	datagram l = {(char *)large, sizeof large, 0};
	DO8(check_send, to), DO8(send, to, &l, 1);
	line("answer"), d[1].port = bt, DO8(check_send, o), DO8(send, o, d + 1, 1), number(big[1]);
	wait(subscribe_incoming(from)), receive(from, 1, words), result(words, 4), number(words[2]);
	drop_incoming(from), drop_outgoing(to);
	line("any again"), udp_stream(b, 0, V4(0, 0, 0, 0, 0), words), result(words, 4), from = words[1], to = words[2];
	DO4(udp_remote_address, b), DO4(udp_local_address, b), number(port(words) == bt);
	u32 p = subscribe_udp(b);
	number(ready(p)), drop_pollable(p);
	drop_incoming(in), drop_outgoing(o), drop_udp(a), drop_incoming(from), drop_outgoing(to), drop_udp(b);
}

static void names(void) {
	static const char *asked[] = {"127.0.0.1", "::1", "", "a b", "nothing.invalid"};
	for (u32 i = 0; i < 5; i++) {
		line(asked[i]);
		resolve(net, asked[i], length(asked[i]), words);
		if (i == 3 || !result(words, 4)) continue; // wasmtime has names with blanks looked up
		u32 s = words[1];
		if (i == 4) { drop_addresses(s); continue; } // needs a server
		for (;;) {
			wait(subscribe_addresses(s)), next_address(s, small);
			if (!result(small, 2) || !small[2]) break;
			number(small[4]);
			for (u32 j = 0; j < (small[4] ? 16 : 4); j++) number(small[6 + j]);
		}
		drop_addresses(s);
	}
}

__attribute__((export_name("wasi:cli/run@0.2.9#run"))) u32 run(void) {
	out = get_stdout(), net = instance_network();
	connection(0), connection(1), refused(), messages(), names();
	say("\n");
	return 0;
}
