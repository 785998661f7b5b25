/* A small guest: under 40 KB of WebAssembly, so what a pod with it costs is what the runtime costs.
 *
 *   clang --target=wasm32-wasi -O2 -Wl,--strip-all -o guest.wasm guest.c
 *
 * guest idle          says a line and sleeps until it is stopped
 * guest read          says a line and reads stdin to its end
 * guest exit CODE     ends with CODE
 * guest cat PATH      prints a file; 1 and the reason when it cannot
 * guest env NAME      prints a variable of the environment
 * guest trap          executes an unreachable instruction
 * guest fill MIB      allocates and touches that many MiB; 3 when it is refused
 * guest spin          computes without end
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int cat(const char *path) {
	FILE *file = fopen(path, "r");
	char buffer[4096];
	size_t n;

	if (!file) {
		fprintf(stderr, "guest: open %s: %s\n", path, strerror(errno));
		return 1;
	}
	while ((n = fread(buffer, 1, sizeof buffer, file)) > 0)
		fwrite(buffer, 1, n, stdout);
	fclose(file);
	return 0;
}

static int fill(int mib) {
	for (int i = 0; i < mib; i++) {
		volatile char *block = malloc(1 << 20);
		if (!block) {
			printf("guest: %d MiB, then no more\n", i);
			return 3;
		}
		for (int at = 0; at < 1 << 20; at += 4096)
			block[at] = 1;
	}
	printf("guest: %d MiB\n", mib);
	return 0;
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	const char *with = argc > 2 ? argv[2] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(what, "idle")) {
		puts("guest: idle");
		for (;;)
			sleep(3600);
	}
	if (!strcmp(what, "read")) {
		puts("guest: reading");
		while (getchar() != EOF)
			;
		puts("guest: end of input");
		return 0;
	}
	if (!strcmp(what, "exit"))
		return atoi(with);
	if (!strcmp(what, "cat"))
		return cat(with);
	if (!strcmp(what, "env")) {
		const char *value = getenv(with);
		puts(value ? value : "");
		return value ? 0 : 1;
	}
	if (!strcmp(what, "trap"))
		__builtin_trap();
	if (!strcmp(what, "fill"))
		return fill(atoi(with));
	if (!strcmp(what, "spin"))
		for (volatile unsigned i = 0;; i++)
			;
	puts("guest: hello");
	return 0;
}
