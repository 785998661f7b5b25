// The programs of the conformance suite: suite KIND [ARGUMENT].
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
	const char *kind = argc > 1 ? argv[1] : "";
	const char *arg = argc > 2 ? argv[2] : "";
	if (!strcmp(kind, "exit")) return atoi(arg);
	if (!strcmp(kind, "echo")) {
		fputs(arg, stdout);
		return 0;
	}
	if (!strcmp(kind, "sleep")) {
		puts("ready");
		fflush(stdout);
		for (;;) sleep(1000000);
	}
	if (!strcmp(kind, "lines")) {
		for (int i = 0; i < atoi(arg); i++) printf("line %d\n", i);
		return 0;
	}
	if (!strcmp(kind, "env")) {
		const char *value = getenv(arg);
		puts(value ? value : "");
		return 0;
	}
	if (!strcmp(kind, "cat")) {
		char buffer[4096];
		ssize_t n;
		while ((n = read(0, buffer, sizeof buffer)) > 0) write(1, buffer, n);
		return n < 0 ? 1 : atoi(arg);
	}
	fprintf(stderr, "no such program: %s\n", kind);
	return 99;
}
