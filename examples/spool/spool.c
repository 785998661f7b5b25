/* A worker in C, as a component of WASI 0.2: it takes jobs from a folder, one after the other.
 *
 *   clang --target=wasm32-wasi -O2 -Wl,--strip-all -o spool.module.wasm spool.c
 *   wasm-tools component new spool.module.wasm --adapt wasi_snapshot_preview1.command.wasm -o spool.wasm
 *
 * spool [-n COUNT] FOLDER
 *
 * A job is a file FOLDER/new/NAME. Its checksum (FNV-1a), size and number of lines go to FOLDER/done/NAME, by
 * a rename, and the job is removed. Who makes jobs renames them into FOLDER/new too, so that none is
 * seen half. Without -n it works until it is stopped. It ends with 1 if a folder or file cannot be used.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { longest = 1024, pause = 100 * 1000 }; /* bytes of a path; microseconds between two looks */

/* The adapter for preview 1 asks for memory by this. Without it the adapter's state would lie where
 * malloc does not expect it. */
__attribute__((export_name("cabi_realloc"))) void *cabi_realloc(void *old, size_t old_size, size_t align, size_t size) {
	(void)old_size, (void)align; /* malloc aligns to 16 */
	void *at = realloc(old, size);
	if (!at && size)
		abort();
	return at;
}

static void fail(const char *what) {
	fprintf(stderr, "spool: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void path(char *to, const char *folder, const char *part, const char *name) {
	if (snprintf(to, longest, "%s/%s%s", folder, part, name) >= longest) {
		errno = ENAMETOOLONG;
		fail(name);
	}
}

static void work(const char *folder, const char *name) {
	char job[longest], made[longest], result[longest];
	char data[4096];
	uint64_t sum = 14695981039346656037u, bytes = 0, lines = 0;
	size_t n;

	path(job, folder, "new/", name);
	path(made, folder, "done/.", name);
	path(result, folder, "done/", name);
	FILE *in = fopen(job, "r");
	if (!in)
		fail(job);
	while ((n = fread(data, 1, sizeof data, in)) > 0) {
		bytes += n;
		for (size_t i = 0; i < n; i++) {
			sum = (sum ^ (unsigned char)data[i]) * 1099511628211u;
			lines += data[i] == '\n';
		}
	}
	if (ferror(in) || fclose(in))
		fail(job);
	FILE *out = fopen(made, "w");
	if (!out)
		fail(made);
	fprintf(out, "%016llx %llu bytes %llu lines\n", (unsigned long long)sum, (unsigned long long)bytes, (unsigned long long)lines);
	if (fclose(out) || rename(made, result))
		fail(result);
	if (unlink(job))
		fail(job);
	printf("spool: %s: %016llx\n", name, (unsigned long long)sum);
	fflush(stdout);
}

/* look does one job, and says whether there was one. */
static int look(const char *folder) {
	char from[longest], name[longest] = "";
	struct dirent *entry;

	path(from, folder, "new", "");
	DIR *dir = opendir(from);
	if (!dir)
		fail(from);
	while ((entry = readdir(dir))) /* the first by name, so that jobs are done in their order */
		if (entry->d_name[0] != '.' && strlen(entry->d_name) < longest && (!*name || strcmp(entry->d_name, name) < 0))
			strcpy(name, entry->d_name);
	closedir(dir);
	if (!*name)
		return 0;
	work(folder, name);
	return 1;
}

int main(int argc, char **argv) {
	long left = -1;
	char done[longest];

	if (argc == 4 && !strcmp(argv[1], "-n")) {
		left = atol(argv[2]);
		argv += 2;
		argc -= 2;
	}
	if (argc != 2) {
		fprintf(stderr, "usage: spool [-n COUNT] FOLDER\n");
		return 1;
	}
	path(done, argv[1], "done", "");
	if (mkdir(done, 0755) && errno != EEXIST)
		fail(done);
	while (left)
		if (!look(argv[1]))
			usleep(pause);
		else if (left > 0)
			left--;
	return 0;
}
