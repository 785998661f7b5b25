// What a program in C does with WASI 0.2 through the adapter, by its first argument. Its output is the same on every run.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static const char *is(long result) { return result < 0 ? strerror(errno) : "ok"; }
#define TRY(call) (errno = 0, printf("%s: %s\n", #call, is(call)))
#define GET(call) (errno = 0, n = (call), n < 0 ? printf("%s: %s\n", #call, strerror(errno)) : printf("%s: %ld\n", #call, n))

static void kind(const char *path, int follow) {
	struct stat s;
	if (fstatat(AT_FDCWD, path, &s, follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0) {
		printf("%s: %s\n", path, strerror(errno));
		return;
	}
	printf("%s: %s, %lld bytes, %d links\n", path, S_ISREG(s.st_mode) ? "file" : S_ISDIR(s.st_mode) ? "directory" : S_ISLNK(s.st_mode) ? "link" : "other",
		S_ISDIR(s.st_mode) ? 0ll : (long long)s.st_size, S_ISDIR(s.st_mode) ? 0 : (int)s.st_nlink);
}

static int compare(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }

static void list(const char *path) {
	char *names[1000];
	int count = 0;
	DIR *dir = opendir(path);
	if (!dir) {
		printf("list %s: %s\n", path, strerror(errno));
		return;
	}
	for (struct dirent *e; count < 1000 && (e = readdir(dir));) {
		char name[300];
		snprintf(name, sizeof name, "%s %d", e->d_name, e->d_type);
		names[count++] = strdup(name);
	}
	closedir(dir);
	qsort(names, count, sizeof *names, compare);
	printf("list %s:", path);
	for (int i = 0; i < count; i++) printf(" %s", names[i]);
	printf("\n");
}

static void contents(void) {
	char b[100] = {0};
	long n;
	struct stat s;
	int f = open("/home/data", O_RDWR | O_CREAT | O_EXCL, 0640);
	printf("create: %s\n", is(f));
	GET(write(f, "hello, world", 12));
	GET(lseek(f, 0, SEEK_SET));
	GET(read(f, b, 5));
	printf("%s\n", b);
	GET(lseek(f, -3, SEEK_END));
	GET(read(f, b, 100));
	GET(read(f, b, 100));
	GET(lseek(f, -1, SEEK_SET));
	GET(lseek(f, 0, SEEK_CUR));
	GET(pwrite(f, "HELLO", 5, 0));
	GET(pread(f, b, 12, 0));
	printf("%.12s\n", b);
	GET(pwrite(f, "far", 3, 100));
	GET(pread(f, b, 100, 50));
	TRY(ftruncate(f, 20));
	TRY(ftruncate(f, 30));
	TRY(ftruncate(f, -1));
	TRY(posix_fallocate(f, 0, 40) ? -1 : 0);
	TRY(posix_fadvise(f, 0, 10, POSIX_FADV_SEQUENTIAL) ? -1 : 0);
	TRY(fsync(f));
	TRY(fdatasync(f));
	TRY(fstat(f, &s));
	printf("%lld bytes\n", (long long)s.st_size);
	struct timespec times[2] = {{1000, 5}, {2000, 7}};
	TRY(futimens(f, times));
	TRY(fstat(f, &s));
	printf("%lld.%ld %lld.%ld\n", (long long)s.st_atim.tv_sec, s.st_atim.tv_nsec, (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec);
	times[0].tv_nsec = UTIME_OMIT, times[1].tv_nsec = UTIME_NOW;
	TRY(utimensat(AT_FDCWD, "/home/data", times, 0));
	TRY(stat("/home/data", &s));
	printf("%lld.%ld %d\n", (long long)s.st_atim.tv_sec, s.st_atim.tv_nsec, s.st_mtim.tv_sec > 1000000000);
	TRY(close(f));
	TRY(close(f));
	GET(read(f, b, 1));
	f = open("/home/data", O_RDONLY);
	GET(write(f, "x", 1));
	TRY(ftruncate(f, 1));
	TRY(close(f));
	f = open("/home/data", O_WRONLY);
	GET(read(f, b, 1));
	TRY(close(f));
	f = open("/home/log", O_WRONLY | O_CREAT | O_APPEND, 0600);
	GET(write(f, "one ", 4));
	int g = open("/home/log", O_WRONLY | O_APPEND);
	GET(write(g, "two ", 4));
	GET(write(f, "three", 5));
	TRY(fcntl(f, F_GETFL) & O_APPEND ? 0 : -1);
	TRY(fcntl(f, F_SETFL, 0));
	TRY(close(f)), TRY(close(g));
	f = open("/home/log", O_RDONLY);
	GET(read(f, b, 100));
	printf("%.13s\n", b);
	TRY(close(f));
	TRY(open("/home/log", O_RDWR | O_TRUNC));
	kind("/home/log", 1);
	char *large = malloc(3 << 20);
	memset(large, 'x', 3 << 20);
	f = open("/home/large", O_RDWR | O_CREAT, 0644);
	for (long done = 0; done < 3 << 20; done += n)
		if ((n = write(f, large + done, (3 << 20) - done)) <= 0) { perror("large"); break; }
	lseek(f, 0, SEEK_SET);
	long total = 0;
	while ((n = read(f, large, 3 << 20)) > 0) total += n;
	printf("large: %ld bytes\n", total);
	TRY(close(f));
}

static void paths(void) {
	long n;
	char b[100];
	TRY(mkdir("/home/dir", 0755));
	TRY(mkdir("/home/dir", 0755));
	TRY(mkdir("/home/dir/sub", 0700));
	TRY(mkdir("/home/none/sub", 0755));
	TRY(mkdir("/outside", 0755));
	TRY(mkdir("/home/../outside", 0755));
	TRY(open("/home/dir", O_WRONLY));
	TRY(open("/home/data", O_RDONLY | O_DIRECTORY));
	TRY(open("/home/none", O_RDONLY));
	TRY(open("/home/data/x", O_RDONLY));
	TRY(open("/home/data", O_CREAT | O_EXCL | O_WRONLY, 0600));
	TRY(symlink("data", "/home/link"));
	TRY(symlink("data", "/home/link"));
	TRY(symlink("none", "/home/dangling"));
	TRY(symlink("loop", "/home/loop"));
	TRY(symlink("../../outside", "/home/dir/out"));
	TRY(symlink("/etc", "/home/absolute"));
	GET(readlink("/home/link", b, sizeof b));
	GET(readlink("/home/link", b, 2));
	GET(readlink("/home/data", b, sizeof b));
	TRY(open("/home/link", O_RDONLY));
	TRY(open("/home/link", O_RDONLY | O_NOFOLLOW));
	TRY(open("/home/dangling", O_RDONLY));
	TRY(open("/home/dangling", O_WRONLY | O_CREAT, 0644));
	TRY(open("/home/loop", O_RDONLY));
	TRY(open("/home/dir/out", O_RDONLY));
	const char *names[] = {"/home/data", "/home/dir", "/home/dir/", "/home/link", "/home/dangling", "/home/loop", "/home/dir/out", "/home/none", "/home"};
	for (int i = 0; i < 9; i++) kind(names[i], 0), kind(names[i], 1);
	TRY(link("/home/data", "/home/hard"));
	TRY(link("/home/data", "/home/hard"));
	TRY(link("/home/none", "/home/hard2"));
	TRY(link("/home/dir", "/home/hard2"));
	kind("/home/hard", 0);
	struct stat a, c;
	stat("/home/data", &a), stat("/home/hard", &c);
	printf("same: %d\n", a.st_ino == c.st_ino && a.st_dev == c.st_dev);
	TRY(rename("/home/hard", "/home/dir/moved"));
	TRY(rename("/home/hard", "/home/dir/moved"));
	TRY(rename("/home/log", "/home/dir/moved"));
	TRY(rename("/home/dir", "/home/dir/sub/below"));
	TRY(rename("/home/data", "/home/dir"));
	TRY(rename("/home/dir", "/home/data"));
	list("/home"), list("/home/dir"), list("/home/none"), list("/home/data");
	TRY(rmdir("/home/dir"));
	TRY(rmdir("/home/data"));
	TRY(rmdir("/home/dir/sub"));
	TRY(rmdir("/home/none"));
	TRY(unlink("/home/dir"));
	TRY(unlink("/home/loop"));
	TRY(unlink("/home/loop"));
	TRY(unlink("/home/data/"));
	TRY(access("/home/data", R_OK | W_OK));
	TRY(access("/home/none", F_OK));
	TRY(chdir("/home/dir"));
	kind("moved", 1);
	TRY(chdir("/home/none"));
	for (int i = 0; i < 300; i++) {
		snprintf(b, sizeof b, "/home/many/%03d-%0*d", i, i % 60, i);
		if (!i) TRY(mkdir("/home/many", 0755));
		int f = open(b, O_CREAT | O_WRONLY, 0644);
		if (f < 0) perror(b);
		close(f);
	}
	list("/home/many");
}

static int deep(int n) { volatile char room[64]; room[n % 64] = n; return n ? deep(n - 1) + 1 + (room[n % 64] != (char)n) : 0; }
static int endless(int n) { volatile char room[64]; room[n % 64] = n; return endless(n + 1) + room[n % 64]; }

static long long nanoseconds(clockid_t clock) {
	struct timespec t;
	if (clock_gettime(clock, &t)) perror("clock");
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	setvbuf(stdout, NULL, _IOFBF, 1 << 14);
	if (!strcmp(what, "args"))
		for (int i = 1; i < argc; i++) printf("%d [%s]\n", i, argv[i]);
	else if (!strcmp(what, "env"))
		for (char **e = environ; *e; e++) puts(*e);
	else if (!strcmp(what, "exit"))
		exit(atoi(argv[2]));
	else if (!strcmp(what, "return"))
		return atoi(argv[2]);
	else if (!strcmp(what, "streams")) {
		char b[1000];
		long n, total = 0;
		while ((n = read(0, b, sizeof b)) > 0) {
			total += n;
			fwrite(b, 1, n, stdout);
		}
		fprintf(stderr, "%ld bytes, then %s\n", total, is(n));
		printf("terminals: %d %d %d\n", isatty(0), isatty(1), isatty(2));
	} else if (!strcmp(what, "clocks")) {
		long long before = nanoseconds(CLOCK_MONOTONIC), then;
		struct timespec pause = {0, 20000000}, step;
		nanosleep(&pause, NULL);
		then = nanoseconds(CLOCK_MONOTONIC);
		printf("slept: %d, not long: %d\n", then - before >= 20000000, then - before < 5000000000);
		printf("this century: %d\n", nanoseconds(CLOCK_REALTIME) / 1000000000 > 1700000000);
		TRY(clock_getres(CLOCK_MONOTONIC, &step));
		printf("fine: %d\n", step.tv_sec == 0 && step.tv_nsec < 1000000);
		usleep(1000), usleep(0);
		clock_nanosleep(CLOCK_REALTIME, 0, &pause, NULL);
	} else if (!strcmp(what, "random")) {
		unsigned char a[256], b[256];
		int seen[256] = {0}, distinct = 0;
		TRY(getentropy(a, 256));
		TRY(getentropy(b, 256));
		for (int i = 0; i < 256; i++) distinct += !seen[a[i]]++;
		printf("differ: %d, many: %d\n", !!memcmp(a, b, 256), distinct > 100);
		TRY(getentropy(a, 257));
	} else if (!strcmp(what, "poll")) {
		struct pollfd p[2] = {{0, POLLIN, 0}, {1, POLLOUT, 0}};
		int n = poll(p, 1, 1000);
		printf("input ready: %d %d\n", n, p[0].revents);
		n = poll(p + 1, 1, 1000);
		printf("output ready: %d %d\n", n, p[1].revents);
		long long before = nanoseconds(CLOCK_MONOTONIC);
		printf("ready: %d", poll(NULL, 0, 10));
		printf(", later: %d\n", nanoseconds(CLOCK_MONOTONIC) - before >= 10000000);
	} else if (!strcmp(what, "contents"))
		contents();
	else if (!strcmp(what, "paths"))
		contents(), paths();
	else if (!strcmp(what, "big"))
		for (int i = 0; i < 100000; i++) printf("line %d of many, which a pipe does not hold at once\n", i);
	else if (!strcmp(what, "deep"))
		printf("%d\n", deep(500));
	else if (!strcmp(what, "grow")) {
		unsigned sum = 0;
		for (int i = 1; i <= 40; i++) {
			unsigned char *b = calloc(1, 1 << 20);
			if (!b) return puts("no memory"), 1;
			b[i] = i, sum += b[i] + b[(1 << 20) - 1];
		}
		printf("%u, pages: %d\n", sum, __builtin_wasm_memory_size(0) >= 640);
	} else if (!strcmp(what, "trap"))
		fflush(stdout), __builtin_trap();
	else if (!strcmp(what, "endless"))
		return endless(0);
	else if (!strcmp(what, "divide"))
		return 1 / (argc - 2);
	else if (!strcmp(what, "outside"))
		return *(volatile int *)0xfffffff0;
	else if (!strcmp(what, "abort"))
		fputs("before\n", stderr), abort();
	else
		return fprintf(stderr, "unknown %s\n", what), 2;
	return 0;
}
