// probe tries things a guest may or may not do, one per argument, "verb:operand", and prints what came of it.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static void report(const char *what, const char *result) {
	printf("%s=%s\n", what, result);
	fflush(stdout);
}

static void try_read(const char *what, const char *path) {
	char buffer[128];
	int fd = open(path, O_RDONLY);
	if (fd < 0) return report(what, strerror(errno));
	ssize_t n = read(fd, buffer, sizeof buffer - 1);
	close(fd);
	if (n < 0) return report(what, strerror(errno));
	buffer[n] = 0;
	buffer[strcspn(buffer, "\n")] = 0;
	report(what, buffer);
}

static void try_write(const char *what, const char *path) {
	int fd = open(path, O_WRONLY | O_CREAT, 0644);
	if (fd < 0) return report(what, strerror(errno));
	ssize_t n = write(fd, "written\n", 8);
	close(fd);
	report(what, n == 8 ? "ok" : strerror(errno));
}

static void list(const char *what, const char *path) {
	DIR *dir = opendir(path);
	if (!dir) return report(what, strerror(errno));
	int count = 0;
	struct dirent *entry;
	while ((entry = readdir(dir))) count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
	closedir(dir);
	char text[16];
	snprintf(text, sizeof text, "%d", count);
	report(what, text);
}

// grow takes whole MiB until there are no more, and tells how many there are.
static void grow(const char *what) {
	while (__builtin_wasm_memory_grow(0, 16) != (size_t)-1) {}
	char text[32];
	snprintf(text, sizeof text, "%d", (int)(__builtin_wasm_memory_size(0) / 16));
	report(what, text);
}

// fill writes a file of so many MiB.
static void fill(const char *what, const char *path, int mib) {
	static char block[1 << 20];
	memset(block, 1, sizeof block);
	int fd = open(path, O_WRONLY | O_CREAT, 0644);
	if (fd < 0) return report(what, strerror(errno));
	for (int i = 0; i < mib; i++) {
		if (write(fd, block, sizeof block) < 0) return report(what, strerror(errno));
	}
	report(what, "ok");
}

// flood opens a file until there are no more descriptors, and tells how many there were.
static void flood(const char *what, const char *path) {
	int count = 0;
	while (open(path, O_RDONLY) >= 0) count++;
	char text[64];
	snprintf(text, sizeof text, "%d %s", count, strerror(errno));
	report(what, text);
}

// try_link makes a hard link of one path by another, "from>to".
static void try_link(const char *what, char *paths) {
	char *to = strchr(paths, '>');
	*to = 0;
	int failed = link(paths, to + 1);
	*to = '>';
	report(what, failed ? strerror(errno) : "ok");
}

// serve answers one connection on descriptor 3 after the other until it is told to end.
static int serve(void) {
	report("serve", getenv("LISTEN_FDNAMES"));
	for (;;) {
		struct pollfd ready = {.fd = 3, .events = POLLIN};
		poll(&ready, 1, -1);
		int fd = accept(3, NULL, NULL);
		if (fd < 0 && errno == EAGAIN) continue;
		if (fd < 0) return 5;
		write(fd, "hello\n", 6);
		close(fd);
	}
}

int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++) {
		char *what = argv[i];
		char *operand = strchr(what, ':');
		operand = operand ? operand + 1 : "";
		if (!strncmp(what, "read:", 5)) try_read(what, operand);
		else if (!strncmp(what, "write:", 6)) try_write(what, operand);
		else if (!strncmp(what, "list:", 5)) list(what, operand);
		else if (!strncmp(what, "fill:", 5)) fill(what, operand, 64);
		else if (!strncmp(what, "env:", 4)) report(what, getenv(operand) ? getenv(operand) : "");
		else if (!strncmp(what, "flood:", 6)) flood(what, operand);
		else if (!strncmp(what, "link:", 5)) try_link(what, operand);
		else if (!strncmp(what, "exit:", 5)) return atoi(operand);
		else if (!strncmp(what, "await:", 6)) {
			while (access(operand, F_OK)) usleep(2000);
			report(what, "there");
		} else if (!strcmp(what, "grow")) grow(what);
		else if (!strcmp(what, "trap")) __builtin_trap();
		else if (!strcmp(what, "serve")) return serve();
		else if (!strcmp(what, "spin")) {
			report(what, "on");
			for (volatile uint64_t n = 0;; n++) {}
		} else if (!strcmp(what, "sleep")) {
			report(what, "on");
			for (;;) sleep(1000000);
		} else if (!strcmp(what, "line")) {
			char c = 0;
			while (c != '\n' && read(0, &c, 1) == 1) {}
		} else if (!strncmp(what, "count:", 6)) {
			for (int n = 0; n < atoi(operand); n++) {
				printf("%d\n", n);
				fflush(stdout);
				if (n % 100 == 0) usleep(1000);
			}
		} else return 98;
	}
	return 0;
}
