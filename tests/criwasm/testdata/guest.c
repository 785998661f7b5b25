/* The guest of the wasm suite: its first argument says what it does.
 *
 *   clang --target=wasm32-wasi -O2 -Wl,--strip-all -o guest.wasm guest.c
 *
 * idle                  says a line and sleeps
 * exit CODE             ends with CODE
 * args ...              prints its arguments, one a line
 * env [NAME]            prints a variable (1 without it), or all of them
 * cat PATH              prints a file; 1 and the reason when it cannot
 * write PATH TEXT       writes a file; 1 and the reason when it cannot
 * ls PATH               prints what is in a directory
 * both                  a line on stdout, one on stderr, three times
 * long N                a line of N bytes
 * bare                  text without a newline
 * tick                  a numbered line every 5 ms
 * job CODE              three lines, the last one a while after the others, then CODE
 * read                  copies stdin to stdout until it ends
 * serve                 answers connections of the listener at 3; 0 when it gives no more
 * deaf                  like serve, but sleeps when there are no more connections
 * trap                  executes an unreachable instruction
 * fill MIB              allocates and touches that many MiB; 3 when it is refused
 * demand MIB            does so, and traps when it is refused
 * spin                  computes without end
 * time                  prints the seconds since 1970
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static int fail(const char *what, const char *path) {
	fprintf(stderr, "guest: %s %s: %s\n", what, path, strerror(errno));
	return 1;
}

static int cat(const char *path) {
	FILE *file = fopen(path, "r");
	char buffer[4096];
	size_t n;

	if (!file)
		return fail("open", path);
	while ((n = fread(buffer, 1, sizeof buffer, file)) > 0)
		fwrite(buffer, 1, n, stdout);
	fclose(file);
	return 0;
}

static int put(const char *path, const char *text) {
	FILE *file = fopen(path, "w");

	if (!file)
		return fail("create", path);
	if (fputs(text, file) < 0 || fclose(file))
		return fail("write", path);
	return 0;
}

static int ls(const char *path) {
	DIR *dir = opendir(path);
	struct dirent *entry;

	if (!dir)
		return fail("open", path);
	while ((entry = readdir(dir)))
		puts(entry->d_name);
	closedir(dir);
	return 0;
}

static int fill(int mib, int must) {
	for (int i = 0; i < mib; i++) {
		volatile char *block = malloc(1 << 20);
		if (!block) {
			if (must)
				__builtin_trap();
			printf("guest: %d MiB, then no more\n", i);
			return 3;
		}
		for (int at = 0; at < 1 << 20; at += 4096)
			block[at] = 1;
	}
	printf("guest: %d MiB\n", mib);
	return 0;
}

static void serve(void) {
	static const char answer[] = "HTTP/1.0 200 OK\r\nContent-Length: 16\r\n\r\nhello from wasm\n";
	char request[1024];

	/* A listener comes as one that does not wait: servers of Go rely on it. */
	fcntl(3, F_SETFL, 0);
	puts("guest: serving");
	for (;;) {
		int conn = accept(3, NULL, NULL);
		if (conn < 0)
			return;
		if (read(conn, request, sizeof request) > 0)
			write(conn, answer, sizeof answer - 1);
		close(conn);
	}
}

static void forever(void) {
	for (;;)
		sleep(3600);
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	const char *with = argc > 2 ? argv[2] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(what, "idle")) {
		puts("guest: idle");
		forever();
	}
	if (!strcmp(what, "exit"))
		return atoi(with);
	if (!strcmp(what, "args"))
		for (int i = 0; i < argc; i++)
			puts(argv[i]);
	else if (!strcmp(what, "env") && *with) {
		const char *value = getenv(with);
		puts(value ? value : "");
		return !value;
	} else if (!strcmp(what, "env"))
		for (char **e = environ; *e; e++)
			puts(*e);
	else if (!strcmp(what, "cat"))
		return cat(with);
	else if (!strcmp(what, "write"))
		return put(with, argc > 3 ? argv[3] : "");
	else if (!strcmp(what, "ls"))
		return ls(with);
	else if (!strcmp(what, "both"))
		for (int i = 1; i <= 3; i++) {
			printf("out %d\n", i);
			fprintf(stderr, "err %d\n", i);
		}
	else if (!strcmp(what, "long")) {
		for (int i = atoi(with); i > 0; i--)
			putchar('x');
		putchar('\n');
	} else if (!strcmp(what, "bare")) {
		fputs("no newline", stdout);
		fflush(stdout);
	} else if (!strcmp(what, "tick"))
		for (int i = 1;; i++) {
			printf("tick %d\n", i);
			usleep(*with ? atoi(with) : 5000);
		}
	else if (!strcmp(what, "job")) {
		puts("one\ntwo");
		usleep(100000);
		puts("three");
		return atoi(with);
	} else if (!strcmp(what, "read")) {
		int c;
		puts("guest: reading");
		while ((c = getchar()) != EOF)
			putchar(c);
		puts("guest: end of input");
	} else if (!strcmp(what, "serve")) {
		serve();
		puts("guest: no more connections");
	} else if (!strcmp(what, "deaf")) {
		serve();
		forever();
	} else if (!strcmp(what, "trap"))
		__builtin_trap();
	else if (!strcmp(what, "fill"))
		return fill(atoi(with), 0);
	else if (!strcmp(what, "demand"))
		return fill(atoi(with), 1);
	else if (!strcmp(what, "spin"))
		for (volatile unsigned i = 0;; i++)
			;
	else if (!strcmp(what, "time"))
		printf("%lld\n", (long long)time(NULL));
	else
		puts("guest: hello");
	return 0;
}
