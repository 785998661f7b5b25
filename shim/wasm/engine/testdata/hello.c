#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

int main(int argc, char **argv) {
	printf("hello");
	for (int i = 1; i < argc; i++) printf(" %s", argv[i]);
	printf("\n");
	const char *code = getenv("CODE");
	return code ? atoi(code) : 0;
}
