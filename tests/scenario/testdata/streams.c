// A guest that uses its streams: cat [CODE] copies its input, say says a word and ends with 3, prompt
// answers lines, spin never looks at them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
	char buf[16384];
	ssize_t n;
	if (argc < 2)
		return 2;
	if (strcmp(argv[1], "cat") == 0) {
		while ((n = read(0, buf, sizeof buf)) > 0)
			for (ssize_t done = 0, w; done < n; done += w)
				if ((w = write(1, buf + done, n - done)) < 0)
					return 1;
		return argc > 2 ? atoi(argv[2]) : 0;
	}
	if (strcmp(argv[1], "say") == 0) {
		write(1, "said\n", 5);
		write(2, "aside\n", 6);
		return 3;
	}
	if (strcmp(argv[1], "prompt") == 0) {
		printf("> ");
		fflush(stdout);
		while (fgets(buf, sizeof buf, stdin)) {
			if (strcmp(buf, "quit\n") == 0)
				return 6;
			printf("got %s> ", buf);
			fflush(stdout);
		}
		return 0;
	}
	if (strcmp(argv[1], "spin") == 0) {
		write(1, "spinning\n", 9);
		for (volatile unsigned i = 0;; i++)
			;
	}
	return 2;
}
