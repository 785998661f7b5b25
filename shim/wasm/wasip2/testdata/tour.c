// A command of WASI 0.2 in lowered form: it imports core functions, as a component's core module
// does, and says what each of them answers. Its output under wasmtime is tour.txt:
//
//	clang --target=wasm32 -O1 -nostdlib -Wl,--no-entry -o core.wasm tour.c
//	wasm-tools component embed wit core.wasm -o embedded.wasm    (world: include wasi:cli/command@0.2.12)
//	wasm-tools component new embedded.wasm -o tour.wasm
//	echo -n input | wasmtime run --env A=1 --dir DIR::/home tour.wasm; echo $?
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name))) extern
#define STREAMS "wasi:io/streams@0.2.12"
#define TYPES "wasi:filesystem/types@0.2.12"
#define INPUT "[method]input-stream."
#define OUTPUT "[method]output-stream."
#define DESCRIPTOR "[method]descriptor."

IMPORT("wasi:cli/environment@0.2.12", "get-arguments") void get_arguments(u32 *);
IMPORT("wasi:cli/environment@0.2.0", "get-environment") void get_environment(u32 *);
IMPORT("wasi:cli/exit@0.2.12", "exit-with-code") void exit_with_code(u32);
IMPORT("wasi:cli/stdin@0.2.12", "get-stdin") u32 get_stdin(void);
IMPORT("wasi:cli/stdout@0.2.12", "get-stdout") u32 get_stdout(void);
IMPORT("wasi:cli/terminal-stdout@0.2.12", "get-terminal-stdout") void get_terminal_stdout(u32 *);
IMPORT("wasi:clocks/monotonic-clock@0.2.12", "now") u64 now(void);
IMPORT("wasi:clocks/monotonic-clock@0.2.12", "subscribe-duration") u32 subscribe_duration(u64);
IMPORT("wasi:io/poll@0.2.12", "poll") void poll(u32 *, u32, u32 *);
IMPORT("wasi:io/poll@0.2.12", "[method]pollable.block") void block(u32);
IMPORT("wasi:io/poll@0.2.12", "[method]pollable.ready") u32 ready(u32);
IMPORT("wasi:io/poll@0.2.12", "[resource-drop]pollable") void drop_pollable(u32);
IMPORT("wasi:io/error@0.2.12", "[resource-drop]error") void drop_error(u32);
IMPORT(STREAMS, INPUT "blocking-read") void blocking_read(u32, u64, u32 *);
IMPORT(STREAMS, INPUT "blocking-skip") void blocking_skip(u32, u64, u64 *);
IMPORT(STREAMS, INPUT "subscribe") u32 subscribe_input(u32);
IMPORT(STREAMS, "[resource-drop]input-stream") void drop_input(u32);
IMPORT(STREAMS, OUTPUT "check-write") void check_write(u32, u64 *);
IMPORT(STREAMS, OUTPUT "write") void write_(u32, const void *, u32, u32 *);
IMPORT(STREAMS, OUTPUT "blocking-write-and-flush") void blocking_write(u32, const void *, u32, u32 *);
IMPORT(STREAMS, OUTPUT "blocking-flush") void blocking_flush(u32, u32 *);
IMPORT(STREAMS, OUTPUT "blocking-write-zeroes-and-flush") void blocking_zeroes(u32, u64, u32 *);
IMPORT(STREAMS, OUTPUT "blocking-splice") void blocking_splice(u32, u32, u64, u64 *);
IMPORT(STREAMS, OUTPUT "subscribe") u32 subscribe_output(u32);
IMPORT(STREAMS, "[resource-drop]output-stream") void drop_output(u32);
IMPORT("wasi:filesystem/preopens@0.2.12", "get-directories") void get_directories(u32 *);
IMPORT(TYPES, DESCRIPTOR "read-via-stream") void read_via_stream(u32, u64, u32 *);
IMPORT(TYPES, DESCRIPTOR "write-via-stream") void write_via_stream(u32, u64, u32 *);
IMPORT(TYPES, DESCRIPTOR "append-via-stream") void append_via_stream(u32, u32 *);
IMPORT(TYPES, DESCRIPTOR "advise") void advise(u32, u64, u64, u32, u8 *);
IMPORT(TYPES, DESCRIPTOR "sync") void sync_(u32, u8 *);
IMPORT(TYPES, DESCRIPTOR "sync-data") void sync_data(u32, u8 *);
IMPORT(TYPES, DESCRIPTOR "get-flags") void get_flags(u32, u8 *);
IMPORT(TYPES, DESCRIPTOR "get-type") void get_type(u32, u8 *);
IMPORT(TYPES, DESCRIPTOR "set-size") void set_size(u32, u64, u8 *);
IMPORT(TYPES, DESCRIPTOR "set-times") void set_times(u32, u32, u64, u32, u32, u64, u32, u8 *);
IMPORT(TYPES, DESCRIPTOR "read") void read_(u32, u64, u64, u32 *);
IMPORT(TYPES, DESCRIPTOR "write") void write_at(u32, const void *, u32, u64, u64 *);
IMPORT(TYPES, DESCRIPTOR "read-directory") void read_directory(u32, u32 *);
IMPORT(TYPES, DESCRIPTOR "create-directory-at") void create_directory_at(u32, const char *, u32, u8 *);
IMPORT(TYPES, DESCRIPTOR "stat") void stat_(u32, u64 *);
IMPORT(TYPES, DESCRIPTOR "stat-at") void stat_at(u32, u32, const char *, u32, u64 *);
IMPORT(TYPES, DESCRIPTOR "link-at") void link_at(u32, u32, const char *, u32, u32, const char *, u32, u8 *);
IMPORT(TYPES, DESCRIPTOR "open-at") void open_at(u32, u32, const char *, u32, u32, u32, u32 *);
IMPORT(TYPES, DESCRIPTOR "readlink-at") void readlink_at(u32, const char *, u32, u32 *);
IMPORT(TYPES, DESCRIPTOR "remove-directory-at") void remove_directory_at(u32, const char *, u32, u8 *);
IMPORT(TYPES, DESCRIPTOR "rename-at") void rename_at(u32, const char *, u32, u32, const char *, u32, u8 *);
IMPORT(TYPES, DESCRIPTOR "symlink-at") void symlink_at(u32, const char *, u32, const char *, u32, u8 *);
IMPORT(TYPES, DESCRIPTOR "unlink-file-at") void unlink_file_at(u32, const char *, u32, u8 *);
IMPORT(TYPES, DESCRIPTOR "is-same-object") u32 is_same_object(u32, u32);
IMPORT(TYPES, DESCRIPTOR "metadata-hash-at") void metadata_hash_at(u32, u32, const char *, u32, u64 *);
IMPORT(TYPES, "[resource-drop]descriptor") void drop_descriptor(u32);
IMPORT(TYPES, "[method]directory-entry-stream.read-directory-entry") void read_entry(u32, u32 *);
IMPORT(TYPES, "[resource-drop]directory-entry-stream") void drop_entries(u32);
IMPORT(TYPES, "filesystem-error-code") void error_code(u32, u8 *);
IMPORT("wasi:random/random@0.2.12", "get-random-bytes") void get_random_bytes(u64, u32 *);

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

static u32 out, root;
static u8 small[2];
static u32 words[16];
static u64 big[16];

static u32 length(const char *s) {
	u32 n = 0;
	while (s[n]) n++;
	return n;
}
static void print(const char *s, u32 n) {
	u32 result[3];
	for (; n; n -= n < 4096 ? n : 4096, s += 4096)
		blocking_write(out, s, n < 4096 ? n : 4096, result);
}
static void say(const char *s) { print(s, length(s)); }
static void number(u64 n) {
	char digits[20];
	u32 at = 20;
	do digits[--at] = '0' + n % 10; while (n /= 10);
	say(" ");
	print(digits + at, 20 - at);
}
static void line(const char *what) { say("\n"), say(what); }

static const char *codes[] = {"access", "would-block", "already", "bad-descriptor", "busy", "deadlock", "quota", "exist",
	"file-too-large", "illegal-byte-sequence", "in-progress", "interrupted", "invalid", "io", "is-directory", "loop",
	"too-many-links", "message-size", "name-too-long", "no-device", "no-entry", "no-lock", "insufficient-memory",
	"insufficient-space", "not-directory", "not-empty", "not-recoverable", "unsupported", "no-tty", "no-such-device",
	"overflow", "not-permitted", "pipe", "read-only", "invalid-seek", "text-file-busy", "cross-device"};

// result says what a function answered: its discriminant, and where an error-code is.
static int result(void *answer, u32 payload) {
	u8 *at = answer;
	say(" ");
	say(at[0] ? codes[at[payload]] : "ok");
	return !at[0];
}
// flow is result for streams.
static int flow(void *answer, u32 payload) {
	u8 *at = answer;
	u8 code[2];
	if (!at[0]) return say(" ok"), 1;
	if (at[payload]) return say(" closed"), 0;
	u32 error = *(u32 *)(at + payload + 4);
	error_code(error, code);
	drop_error(error);
	say(" failed: ");
	say(code[0] ? codes[code[1]] : "no code");
	return 0;
}

#define P(s) s, sizeof(s) - 1
#define EACH(list) for (u32 i = 0; i < sizeof list / sizeof *list; i++)

static u32 open_(const char *path, u32 follow, u32 how, u32 flags) {
	line("open-at "), say(path), number(how), number(flags);
	open_at(root, follow, path, length(path), how, flags, words);
	return result(words, 4) ? words[1] : 0;
}
static void named(const char *what, const char *path, void (*f)(u32, const char *, u32, u8 *)) {
	line(what), say(" "), say(path);
	f(root, path, length(path), small);
	result(small, 1);
}
#define NAMED(f, path) named(#f, path, f)

static void describe(u32 handle) {
	stat_(handle, big);
	if (!result(big, 8)) return;
	number(((u8 *)big)[8]);
	if (((u8 *)big)[8] == 6) number(big[2]), number(big[3]);
}

static void streams(void) {
	u32 in = get_stdin();
	line("stdin");
	blocking_read(in, 3, words);
	if (flow(words, 4)) say(" "), print((char *)words[1], words[2]);
	blocking_skip(in, 1, big);
	if (flow(big, 8)) number(big[1]);
	u32 p = subscribe_input(in);
	block(p), number(ready(p)), drop_pollable(p);
	blocking_read(in, 100, words);
	if (flow(words, 4)) say(" "), print((char *)words[1], words[2]);
	blocking_read(in, 1, words), flow(words, 4);
	blocking_read(in, 1, words), flow(words, 4);
	drop_input(in);
	line("stdout");
	u32 to = get_stdout(), write = subscribe_output(to);
	number(ready(write)), drop_pollable(write);
	check_write(to, big), flow(big, 8), say(big[1] >= 4096 ? " room" : " no room");
	write_(to, P(" written"), words), flow(words, 4);
	blocking_flush(to, words), flow(words, 4);
	drop_output(to);
	get_terminal_stdout(words);
	line("terminal"), number(*(u8 *)words);
	line("poll");
	u32 pollables[] = {subscribe_duration(3600000000000), subscribe_duration(1000000), subscribe_duration(3600000000000)};
	u64 before = now();
	poll(pollables, 3, words);
	number(words[1]), number(*(u32 *)words[0]), say(now() - before >= 1000000 ? " late" : " early");
}

static void contents(void) {
	u32 h = open_("data", 0, 1, 3);
	line("write");
	write_at(h, P("hello, world"), 0, big), result(big, 8), number(big[1]);
	write_at(h, P("!"), 12, big), result(big, 8), number(big[1]);
	write_at(h, P(""), 0, big), result(big, 8), number(big[1]);
	line("read");
	u64 reads[][2] = {{5, 0}, {100, 7}, {5, 13}, {0, 0}, {5, 1000}, {5, 1ull << 63}};
	EACH(reads) {
		read_(h, reads[i][0], reads[i][1], words);
		if (result(words, 4)) say(" "), print((char *)words[1], words[2]), number(*(u8 *)&words[3]);
	}
	line("streams");
	read_via_stream(h, 7, words), result(words, 4);
	u32 in = words[1];
	write_via_stream(h, 0, words), result(words, 4);
	u32 to = words[1];
	append_via_stream(h, words), result(words, 4);
	u32 end = words[1];
	get_flags(h, small), result(small, 1), number(small[1]);
	drop_descriptor(h);
	check_write(to, big), flow(big, 8), say(big[1] >= 4096 ? " room" : " no room");
	write_(to, P("HELLO"), words), flow(words, 4);
	blocking_flush(to, words), flow(words, 4);
	blocking_write(end, P("appended"), words), flow(words, 4);
	blocking_zeroes(end, 2, words), flow(words, 4);
	blocking_write(to, P(";"), words), flow(words, 4);
	blocking_splice(end, in, 5, big), flow(big, 8), number(big[1]);
	blocking_read(in, 4, words), flow(words, 4), say(" "), print((char *)words[1], words[2]);
	blocking_skip(in, 1000, big), flow(big, 8), number(big[1]);
	blocking_skip(in, 1000, big), flow(big, 8);
	blocking_skip(in, 1000, big), flow(big, 8);
	drop_input(in), drop_output(to), drop_output(end);
	h = open_("data", 0, 0, 1);
	read_(h, 100, 0, words), result(words, 4), number(words[2]), say(" "), print((char *)words[1], 21);
	line("not open for writing");
	write_at(h, P("x"), 0, big), result(big, 8);
	set_size(h, 1, small), result(small, 1);
	write_via_stream(h, 0, words);
	if (result(words, 4)) {
		to = words[1];
		blocking_write(to, P("x"), words), flow(words, 4);
		blocking_write(to, P("x"), words), flow(words, 4);
		check_write(to, big), flow(big, 8);
		drop_output(to);
	}
	line("offset");
	read_via_stream(h, 1ull << 63, words);
	if (result(words, 4)) {
		in = words[1];
		blocking_read(in, 1, words), flow(words, 4);
		blocking_read(in, 1, words), flow(words, 4);
		drop_input(in);
	}
	line("others");
	sync_(h, small), result(small, 1);
	sync_data(h, small), result(small, 1);
	advise(h, 0, 10, 3, small), result(small, 1);
	advise(root, 0, 10, 3, small), result(small, 1);
	set_size(root, 0, small), result(small, 1);
	write_at(root, P("x"), 0, big), result(big, 8);
	read_(root, 1, 0, words), result(words, 4);
	write_via_stream(root, 0, words), result(words, 4);
	append_via_stream(root, words), result(words, 4);
	get_type(h, small), result(small, 1), number(small[1]);
	get_type(root, small), result(small, 1), number(small[1]);
	set_times(h, 2, 5, 6, 2, 7, 8, small), result(small, 1);
	stat_(h, big), number(big[5]), number(*(u32 *)&big[6]), number(big[8]), number(*(u32 *)&big[9]);
	set_times(h, 2, 1ull << 63, 0, 0, 0, 0, small), result(small, 1);
	describe(h);
	drop_descriptor(h);
	h = open_("data", 0, 0, 2);
	read_(h, 1, 0, words), result(words, 4);
	set_size(h, 3, small), result(small, 1), describe(h);
	set_size(h, 1ull << 63, small), result(small, 1);
	drop_descriptor(h);
}

static void paths(void) {
	NAMED(create_directory_at, "dir"), NAMED(create_directory_at, "dir"), NAMED(create_directory_at, "no/dir");
	NAMED(create_directory_at, "data/x"), NAMED(create_directory_at, ""), NAMED(create_directory_at, "/abs");
	NAMED(create_directory_at, "../out"), NAMED(create_directory_at, "dir/../../out"), NAMED(create_directory_at, "dir/../in");
	line("symlink-at");
	symlink_at(root, P("nowhere"), P("dangling"), small), result(small, 1);
	symlink_at(root, P("nowhere"), P("dangling"), small), result(small, 1);
	symlink_at(root, P("/etc"), P("absolute"), small), result(small, 1);
	symlink_at(root, P("../out"), P("up"), small), result(small, 1);
	symlink_at(root, P("loop"), P("loop"), small), result(small, 1);
	symlink_at(root, P("dir"), P("linked"), small), result(small, 1);
	line("readlink-at");
	readlink_at(root, P("dangling"), words);
	if (result(words, 4)) say(" "), print((char *)words[1], words[2]);
	readlink_at(root, P("data"), words), result(words, 4);
	readlink_at(root, P("gone"), words), result(words, 4);
	line("stat-at");
	const char *names[] = {"data", "dir", "dangling", "up", "loop", "linked", "gone", "dir/", "data/x", "../data", "/data", ""};
	for (u32 follow = 0; follow < 2; follow++)
		EACH(names) {
			say(" "), say(names[i]);
			stat_at(root, follow, names[i], length(names[i]), big);
			if (result(big, 8)) number(((u8 *)big)[8]);
		}
	struct { const char *path; u32 follow, how, flags; } opens[] = {
		{"dir", 0, 0, 1}, {"dir", 0, 2, 1}, {"dir", 0, 0, 2}, {"data", 0, 2, 1}, {"data", 0, 5, 3}, {"gone", 0, 0, 1},
		{"gone", 0, 3, 1}, {"dangling", 0, 0, 1}, {"dangling", 1, 0, 1}, {"up", 1, 0, 1}, {"up", 1, 1, 3}, {"loop", 1, 0, 1},
		{"linked", 1, 0, 1}, {"../data", 0, 0, 1}, {"/data", 0, 0, 1}, {"", 0, 0, 1}, {"data/", 0, 0, 1}, {"data", 0, 8, 2},
		{"dangling", 1, 1, 2}, {"nowhere", 0, 0, 1}, {"data", 0, 4, 1},
	};
	EACH(opens) {
		u32 h = open_(opens[i].path, opens[i].follow, opens[i].how, opens[i].flags);
		if (h) describe(h), drop_descriptor(h);
	}
	line("link-at");
	link_at(root, 0, P("data"), root, P("hard"), small), result(small, 1);
	link_at(root, 0, P("data"), root, P("hard"), small), result(small, 1);
	link_at(root, 0, P("gone"), root, P("hard2"), small), result(small, 1);
	link_at(root, 0, P("dir"), root, P("hard2"), small), result(small, 1);
	link_at(root, 0, P("data"), root, P("../hard2"), small), result(small, 1);
	u32 data = open_("data", 0, 0, 1), hard = open_("hard", 0, 0, 1), dir = open_("dir", 0, 2, 1);
	line("identity");
	number(is_same_object(data, hard)), number(is_same_object(data, dir)), number(is_same_object(data, data));
	u64 other[3];
	metadata_hash_at(root, 0, P("data"), big), result(big, 8);
	metadata_hash_at(root, 0, P("hard"), other), result(other, 8), number(big[1] == other[1] && big[2] == other[2]);
	metadata_hash_at(root, 0, P("dir"), other), result(other, 8), number(big[1] == other[1]);
	metadata_hash_at(root, 0, P("gone"), other), result(other, 8);
	line("not a directory");
	open_at(data, 0, P("x"), 0, 1, words), result(words, 4);
	create_directory_at(data, P("x"), small), result(small, 1);
	read_directory(data, words), result(words, 4);
	link_at(root, 0, P("data"), data, P("x"), small), result(small, 1);
	line("rename-at");
	rename_at(root, P("hard"), dir, P("moved"), small), result(small, 1);
	rename_at(root, P("hard"), dir, P("moved"), small), result(small, 1);
	rename_at(root, P("in"), dir, P("moved"), small), result(small, 1);
	rename_at(root, P("data"), dir, P("../../out"), small), result(small, 1);
	rename_at(root, P("in"), root, P("dir"), small), result(small, 1);
	line("read-directory");
	read_directory(dir, words), result(words, 4);
	u32 list = words[1];
	drop_descriptor(dir);
	do {
		read_entry(list, words);
		if (!result(words, 4) || !(u8)words[1]) break;
		number((u8)words[2]), say(" "), print((char *)words[3], words[4]);
	} while (1);
	read_entry(list, words), result(words, 4), number((u8)words[1]);
	drop_entries(list);
	NAMED(remove_directory_at, "dir"), NAMED(remove_directory_at, "data"), NAMED(remove_directory_at, "in");
	NAMED(remove_directory_at, "in"), NAMED(remove_directory_at, "linked"), NAMED(remove_directory_at, "..");
	NAMED(unlink_file_at, "dir"), NAMED(unlink_file_at, "dangling"), NAMED(unlink_file_at, "dangling");
	NAMED(unlink_file_at, "../data"), NAMED(unlink_file_at, "data/"), NAMED(unlink_file_at, "data");
	drop_descriptor(data), drop_descriptor(hard);
}

static int equal(const char *arg, u32 n, const char *s) {
	if (n != length(s)) return 0;
	while (n--) if (arg[n] != s[n]) return 0;
	return 1;
}

// trap does what a guest must not, by the name of it.
static void trap(const char *arg, u32 n) {
	static u8 page[5000];
	u32 in = get_stdin();
	if (equal(arg, n, "children")) subscribe_input(in), drop_input(in);
	if (equal(arg, n, "unknown")) drop_input(1234);
	if (equal(arg, n, "zero")) drop_input(0);
	if (equal(arg, n, "type")) drop_output(in);
	if (equal(arg, n, "twice")) drop_input(in), drop_input(in);
	if (equal(arg, n, "empty")) poll(words, 0, words);
	if (equal(arg, n, "long")) blocking_write(out, page, 4097, words);
	if (equal(arg, n, "zeroes")) blocking_zeroes(out, 4097, words);
	if (equal(arg, n, "bounds")) blocking_write(out, (void *)0x7fffffff, 1, words);
	if (equal(arg, n, "aligned")) poll((u32 *)1, 1, words);
	if (equal(arg, n, "result")) blocking_read(in, 1, (u32 *)((u32)words + 2));
	if (equal(arg, n, "utf8")) create_directory_at(root, P("\xff"), small);
	if (equal(arg, n, "advice")) advise(root, 0, 0, 6, small);
	if (equal(arg, n, "random")) get_random_bytes((64 << 20) + 1, words);
	line("no trap");
}

__attribute__((export_name("wasi:cli/run@0.2.12#run"))) u32 run(void) {
	out = get_stdout();
	get_directories(words);
	u32 *preopen = (u32 *)words[0];
	root = preopen[0];
	say("preopens"), number(words[1]), say(" "), print((char *)preopen[1], preopen[2]);
	get_flags(root, small), number(small[1]);
	open_at(root, 1, P("home"), 2, 33, words); // in a pod the preopen is the whole root, and no path leads out of that
	if (!(words[0] & 0xff)) root = words[1];
	get_arguments(words);
	u32 *args = (u32 *)words[0];
	if (words[1] > 1) {
		if (equal((char *)args[2], args[3], "error")) return 1;
		trap((char *)args[2], args[3]);
		return 0;
	}
	get_environment(words);
	u32 *env = (u32 *)words[0];
	line("environment"), number(words[1]);
	say(" "), print((char *)env[0], env[1]), say("="), print((char *)env[2], env[3]);
	streams();
	contents();
	paths();
	line("done\n");
	exit_with_code(7);
	return 0;
}
