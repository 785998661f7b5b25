// trap ends in the way that its argument names, a few calls deep.
#include <string.h>

__attribute__((noinline)) static int divide(volatile int a, volatile int b) { return a / b; }

__attribute__((noinline)) static int far_away(volatile unsigned at) { return *(volatile int *)at; }

__attribute__((noinline)) static int deep(volatile int n) { return deep(n + 1) + n; }

static int other(int a, int b, int c) { return a + b + c; }

__attribute__((noinline)) static int wrong_type(void) {
	int (*volatile f)(void) = (int (*)(void))other;
	return f();
}

__attribute__((noinline)) static int choose(const char *way) {
	if (!strcmp(way, "divide")) return divide(1, 0);
	if (!strcmp(way, "memory")) return far_away(0xfffffff0);
	if (!strcmp(way, "deep")) return deep(0);
	if (!strcmp(way, "type")) return wrong_type();
	if (!strcmp(way, "abort")) __builtin_trap();
	return 98;
}

int main(int argc, char **argv) { return choose(argc > 1 ? argv[1] : ""); }
