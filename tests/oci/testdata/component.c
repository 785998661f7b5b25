// component.wasm is this program as a component of WASI 0.2, without an adapter:
//
//	clang --target=wasm32 -Os -nostdlib -Wl,--no-entry -Wl,--strip-all -o core.wasm component.c
//	wasm-tools component embed wit core.wasm -o embedded.wasm    (world: include wasi:cli/command@0.2.9)
//	wasm-tools component new embedded.wasm -o component.wasm
//
// wasm-tools is 1.262.0, the WIT packages are those of the crate wasip2 1.0.2.
//
//	say WORD...   prints the words
//	exit CODE     ends with a code
//	trap          traps
//	serve         answers each TCP connection to port 8080 with what it sends first
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name))) extern
#define VERSION "@0.2.9"
#define STREAMS "wasi:io/streams" VERSION
#define TCP "wasi:sockets/tcp" VERSION
#define T "[method]tcp-socket."
#define ADDRESS u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32

IMPORT("wasi:cli/environment" VERSION, "get-arguments") void get_arguments(u32 *);
IMPORT("wasi:cli/exit" VERSION, "exit-with-code") void exit_with_code(u32);
IMPORT("wasi:cli/stdout" VERSION, "get-stdout") u32 get_stdout(void);
IMPORT("wasi:io/poll" VERSION, "[method]pollable.block") void block(u32);
IMPORT("wasi:io/poll" VERSION, "[resource-drop]pollable") void drop_pollable(u32);
IMPORT(STREAMS, "[method]input-stream.blocking-read") void blocking_read(u32, u64, u32 *);
IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush") void blocking_write(u32, const void *, u32, u32 *);
IMPORT(STREAMS, "[resource-drop]input-stream") void drop_input(u32);
IMPORT(STREAMS, "[resource-drop]output-stream") void drop_output(u32);
IMPORT("wasi:sockets/instance-network" VERSION, "instance-network") u32 instance_network(void);
IMPORT("wasi:sockets/tcp-create-socket" VERSION, "create-tcp-socket") void create_tcp(u32, u32 *);
IMPORT(TCP, T "start-bind") void start_bind(u32, u32, ADDRESS, u8 *);
IMPORT(TCP, T "finish-bind") void finish_bind(u32, u8 *);
IMPORT(TCP, T "start-listen") void start_listen(u32, u8 *);
IMPORT(TCP, T "finish-listen") void finish_listen(u32, u8 *);
IMPORT(TCP, T "accept") void accept(u32, u32 *);
IMPORT(TCP, T "subscribe") u32 subscribe(u32);
IMPORT(TCP, "[resource-drop]tcp-socket") void drop_tcp(u32);

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

static u32 words[8];
static u8 small[2];

static void must(u8 *answer) {
	if (answer[0]) exit_with_code(100 + answer[1]);
}

static void serve(void) {
	u32 net = instance_network();
	create_tcp(0, words);
	u32 s = words[1];
	start_bind(s, net, 0, 8080, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, small), must(small);
	finish_bind(s, small), must(small);
	start_listen(s, small), must(small);
	finish_listen(s, small), must(small);
	u32 out = get_stdout();
	blocking_write(out, "listening\n", 10, words);
	for (;;) {
		u32 p = subscribe(s);
		block(p), drop_pollable(p);
		u8 *heap = next;
		accept(s, words);
		if (words[0] & 0xff) { // it was asked to stop
			blocking_write(out, "stopped\n", 8, words);
			exit_with_code(0);
		}
		u32 peer = words[1], in = words[2], answer = words[3];
		blocking_read(in, 1000, words);
		if (!(words[0] & 0xff)) blocking_write(answer, (void *)words[1], words[2], words);
		drop_input(in), drop_output(answer), drop_tcp(peer);
		next = heap;
	}
}

__attribute__((export_name("wasi:cli/run@0.2.9#run"))) u32 run(void) {
	u32 list[2], result[3];
	get_arguments(list);
	struct { const char *at; u32 size; } *args = (void *)list[0];
	switch (list[1] > 1 ? args[1].at[0] : 0) {
	case 's':
		if (args[1].at[1] == 'e') serve();
		for (u32 i = 2; i < list[1]; i++) {
			blocking_write(get_stdout(), args[i].at, args[i].size, result);
			blocking_write(get_stdout(), i + 1 < list[1] ? " " : "\n", 1, result);
		}
		return 0;
	case 'e': {
		u32 code = 0;
		for (u32 i = 0; i < args[2].size; i++) code = 10 * code + args[2].at[i] - '0';
		exit_with_code(code);
	}
	case 't':
		__builtin_trap();
	}
	return 1;
}
