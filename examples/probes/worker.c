/* A worker with a life that others look after: it takes one step after another, and ends with 0 when it is told to
 * drain. WASI preview 1 has no signals, so that is what its preStop hook is for.
 *
 *   clang --target=wasm32-wasi -O2 -Wl,--strip-all -o worker.wasm worker.c
 *
 * worker              works
 * worker alive        is the probe, and so on: see state.h
 *
 * STEPS in the environment is the number of steps after which it hangs, as programs do one day; without, it never does.
 */
#include "state.h"

int main(int argc, char **argv) {
	const char *limit = getenv("STEPS");
	char text[32];

	if (argc > 1)
		return ask(argv[1]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("worker: up");
	for (long n = 1; !exists(DRAIN); n++) {
		if (limit && n > atol(limit)) {
			puts("worker: hangs");
			for (;;)
				sleep(3600);
		}
		snprintf(text, sizeof text, "%ld\n", n);
		if (put(BEAT, text) < 0)
			return 1;
		usleep(5 * tick);
	}
	puts("worker: drained");
	return 0;
}
