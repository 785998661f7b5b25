/* What the worker and those who ask after it have in common: files in a folder that both see. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BEAT "/run/beat"   /* written anew with every step */
#define DRAIN "/run/drain" /* there when no further step shall begin */

enum { stale = 2 /* seconds */, tick = 20000 /* microseconds */ };

static int exists(const char *path) {
	struct stat info;
	return stat(path, &info) == 0;
}

static int put(const char *path, const char *text) {
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));
	if (n < 0)
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return n < 0 ? -1 : 0;
}

/* await returns 0 when the file is there, 1 when it has not come within so many seconds. */
static int await(const char *path, int seconds) {
	for (time_t end = time(NULL) + seconds; time(NULL) <= end; usleep(tick))
		if (exists(path))
			return 0;
	fprintf(stderr, "%s has not come in %d s\n", path, seconds);
	return 1;
}

/* alive is the probe: 0 while the beat is young. */
static int alive(void) {
	struct stat info;
	if (stat(BEAT, &info) < 0) {
		printf("no beat yet\n");
		return 1;
	}
	long age = (long)(time(NULL) - info.st_mtim.tv_sec);
	printf("the last beat was %s\n", age > stale ? "too long ago" : "just now");
	return age > stale;
}

/* ask does what a probe or hook is told to; 2 for what it does not know. */
static int ask(const char *what) {
	if (!strcmp(what, "alive"))
		return alive();
	if (!strcmp(what, "started")) /* postStart */
		return await(BEAT, 10);
	if (!strcmp(what, "drain")) /* preStop */
		return put(DRAIN, "") < 0;
	fprintf(stderr, "usage: alive | started | drain\n");
	return 2;
}
