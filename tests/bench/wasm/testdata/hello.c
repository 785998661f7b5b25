/* The C guest whose start and memory make bench-wasm measures: it says that it is up, and sleeps. */
#include <stdio.h>
#include <unistd.h>

int main(void) {
	puts("up");
	fflush(stdout);
	for (;;)
		sleep(3600);
}
