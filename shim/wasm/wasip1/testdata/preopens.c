// Finds the preopens as any program of wasi-libc does, and uses what a C library needs of the host.
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
	assert(argc == 2 && strcmp(argv[1], "argument") == 0);
	assert(strcmp(getenv("NAME"), "value") == 0);

	FILE *f = fopen("/file", "w");
	assert(f != NULL);
	assert(fprintf(f, "line %d\n", 1) == 7 && fclose(f) == 0);
	f = fopen("/file", "a+");
	assert(f != NULL && fputs("line 2\n", f) >= 0 && fseek(f, 0, SEEK_SET) == 0);
	char line[20];
	assert(fgets(line, sizeof line, f) != NULL && strcmp(line, "line 1\n") == 0);
	assert(fgets(line, sizeof line, f) != NULL && strcmp(line, "line 2\n") == 0 && fclose(f) == 0);

	struct stat st;
	assert(stat("/file", &st) == 0 && st.st_size == 14 && S_ISREG(st.st_mode));
	assert(mkdir("/dir", 0755) == 0 && mkdir("/dir", 0755) == -1 && errno == EEXIST);
	assert(rename("/file", "/dir/file") == 0 && stat("/file", &st) == -1 && errno == ENOENT);
	assert(symlink("dir/file", "/link") == 0 && lstat("/link", &st) == 0 && S_ISLNK(st.st_mode));
	assert(open("/dir", O_RDWR) == -1 && errno == EISDIR);
	assert(open("/link", O_RDONLY | O_NOFOLLOW) == -1 && errno == ELOOP);

	int entries = 0;
	DIR *d = opendir("/");
	assert(d != NULL);
	for (struct dirent *e; (e = readdir(d)) != NULL;) entries++;
	rewinddir(d);
	for (struct dirent *e; (e = readdir(d)) != NULL;) entries--;
	assert(entries == 0 && closedir(d) == 0);

	struct timespec before, after, pause = {0, 20 * 1000 * 1000};
	clock_gettime(CLOCK_MONOTONIC, &before);
	assert(nanosleep(&pause, NULL) == 0);
	clock_gettime(CLOCK_MONOTONIC, &after);
	assert((after.tv_sec - before.tv_sec) * 1000000000LL + after.tv_nsec - before.tv_nsec >= 20 * 1000 * 1000);

	struct pollfd idle = {3, POLLRDNORM, 0};
	assert(poll(&idle, 1, 10) == 0); // nobody has connected to the listener
	assert(isatty(0) == 0 && isatty(1) == 0 && lseek(1, 0, SEEK_CUR) == -1 && errno == ESPIPE);
	assert((fcntl(3, F_GETFL) & O_NONBLOCK) != 0);
	assert(accept(3, NULL, NULL) == -1 && errno == EAGAIN);
	puts("done");
	return 7;
}
