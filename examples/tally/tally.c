/* A batch job in C: it counts the words of files, and of all files below folders, and prints the most
 * frequent.
 *
 *   clang --target=wasm32-wasi -O2 -Wl,--strip-all -o tally.wasm tally.c
 *
 * tally [-n COUNT] [-o FILE] PATH...
 *
 * Words are letters of ASCII, in lower case, and bytes of other characters as they are. The result goes to the
 * standard output, or to FILE when all is counted. The exit code is 1 if something could not be
 * read (the rest is counted) or written, 2 for a wrong command line.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { buckets = 1 << 14, longest = 64 };

struct word {
	struct word *next;
	unsigned long count;
	char text[];
};

static struct word *table[buckets];
static size_t words;
static unsigned long total, files;
static int failed;

static void complain(const char *what) {
	fprintf(stderr, "tally: %s: %s\n", what, strerror(errno));
	failed = 1;
}

static void count(const char *text, size_t length) {
	unsigned hash = 2166136261u; /* FNV-1a */
	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)text[i]) * 16777619u;
	struct word **at = &table[hash % buckets];
	while (*at && (strncmp((*at)->text, text, length) || (*at)->text[length]))
		at = &(*at)->next;
	if (!*at) {
		*at = calloc(1, sizeof(struct word) + length + 1);
		if (!*at) {
			complain("no more memory");
			exit(1);
		}
		memcpy((*at)->text, text, length);
		words++;
	}
	(*at)->count++;
	total++;
}

static void read_file(const char *path) {
	FILE *file = fopen(path, "r");
	char word[longest];
	size_t length = 0;
	int c;

	if (!file) {
		complain(path);
		return;
	}
	do {
		c = getc(file);
		if (c != EOF && (isalpha(c) || c >= 0x80)) {
			if (length < longest)
				word[length++] = (char)tolower(c);
		} else if (length > 0) {
			count(word, length);
			length = 0;
		}
	} while (c != EOF);
	if (ferror(file))
		complain(path);
	else
		files++;
	fclose(file);
}

static void read_path(const char *path) {
	struct stat info;
	struct dirent *entry;
	DIR *folder;

	if (stat(path, &info) < 0) {
		complain(path);
		return;
	}
	if (!S_ISDIR(info.st_mode)) {
		read_file(path);
		return;
	}
	if (!(folder = opendir(path))) {
		complain(path);
		return;
	}
	while ((entry = readdir(folder))) {
		char inner[4096];
		if (entry->d_name[0] == '.')
			continue;
		snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
		read_path(inner);
	}
	closedir(folder);
}

/* by_count sorts by count, the highest first, then by text. */
static int by_count(const void *left, const void *right) {
	const struct word *a = *(const struct word *const *)left, *b = *(const struct word *const *)right;
	if (a->count != b->count)
		return a->count < b->count ? 1 : -1;
	return strcmp(a->text, b->text);
}

static void print(FILE *out, size_t most) {
	struct word **all = calloc(words + 1, sizeof *all);
	size_t n = 0;

	for (int i = 0; i < buckets; i++)
		for (struct word *w = table[i]; w; w = w->next)
			all[n++] = w;
	qsort(all, n, sizeof *all, by_count);
	for (size_t i = 0; i < n && i < most; i++)
		fprintf(out, "%7lu %s\n", all[i]->count, all[i]->text);
	fprintf(out, "%7lu words, %zu of them different, in %lu files\n", total, words, files);
	free(all);
}

int main(int argc, char **argv) {
	const char *to = NULL;
	long most = 10;
	int option;

	while ((option = getopt(argc, argv, "n:o:")) != -1) {
		if (option == 'n')
			most = strtol(optarg, NULL, 10);
		else if (option == 'o')
			to = optarg;
		else
			return 2;
	}
	if (optind == argc || most < 1) {
		fprintf(stderr, "usage: tally [-n COUNT] [-o FILE] PATH...\n");
		return 2;
	}
	for (int i = optind; i < argc; i++)
		read_path(argv[i]);
	FILE *out = to ? fopen(to, "w") : stdout;
	if (!out) {
		complain(to);
		return 1;
	}
	print(out, (size_t)most);
	if (fflush(out) || (to && fclose(out)))
		complain(to ? to : "standard output");
	return failed;
}
