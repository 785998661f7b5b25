/* What probes and hooks of the worker run: a module of its own in the same image, far smaller than many a worker.
 *
 *   clang --target=wasm32-wasi -O2 -Wl,--strip-all -o check.wasm check.c
 *
 * check alive         0 while the worker's last beat is young, else 1
 * check started       waits for the first beat
 * check drain         tells the worker to end
 */
#include "state.h"

int main(int argc, char **argv) {
	return ask(argc > 1 ? argv[1] : "");
}
