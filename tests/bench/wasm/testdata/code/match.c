// A backtracking matcher of patterns with . * + ? [] ^ $ over lines of text.
#include <stdio.h>
#include <string.h>

#include "../result.h"

static char text[1 << 17];

static int one(const char *pattern, int c)
{
	if (*pattern == '[') {
		for (pattern++; *pattern != ']'; pattern++)
			if (pattern[1] == '-') {
				if (pattern[0] <= c && c <= pattern[2])
					return 1;
				pattern += 2;
			} else if (*pattern == c) {
				return 1;
			}
		return 0;
	}
	return *pattern == '.' ? c != '\n' : *pattern == c;
}

static const char *after(const char *pattern)
{
	if (*pattern == '[')
		while (*pattern != ']')
			pattern++;
	return pattern + 1;
}

static const char *here(const char *pattern, const char *at, const char *end)
{
	while (*pattern) {
		const char *next = after(pattern);

		if (*pattern == '$' && !*next)
			return at == end ? at : 0;
		if (*next == '*' || *next == '+' || *next == '?') {
			int least = *next == '+', most = *next == '?' ? 1 : 1 << 30, n = 0;

			while (n < most && at + n < end && one(pattern, at[n]))
				n++;
			for (; n >= least; n--) {
				const char *found = here(next + 1, at + n, end);
				if (found)
					return found;
			}
			return 0;
		}
		if (at == end || !one(pattern, *at))
			return 0;
		at++;
		pattern = next;
	}
	return at;
}

int main(void)
{
	static const char *patterns[] = {"error: .*timeout", "[a-z]+@[a-z]+.com", "id=[0-9]+ .*done$", "^GET /[a-z/]*[?]q=", "x.*y.*z"};
	char *end = text;
	unsigned count = 0, length = 0;

	for (int i = 0; end < text + sizeof text - 200; i++)
		end += sprintf(end, "%s /path/to/%d?q=%x id=%d user%c@host.com %s: after the timeout z%d done\n", i % 3 ? "GET" : "xPUT", i, i * 77, i,
		               'a' + i % 26, i % 5 ? "warning" : "error", i);
	for (int turn = 0; turn < 4; turn++)
		for (int p = 0; p < 5; p++)
			for (const char *line = text, *stop; line < end; line = stop + 1) {
				stop = memchr(line, '\n', end - line);
				for (const char *at = line; at <= stop; at++) {
					const char *found = here(patterns[p] + (*patterns[p] == '^'), at, stop);
					if (found) {
						count++, length += found - at;
						break;
					}
					if (*patterns[p] == '^')
						break;
				}
			}
	result("%u %u\n", count, length);
}
