// Packs 1 MiB with an LZ77 compressor, unpacks and compares.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "../result.h"

enum { size = 1 << 20, slots = 1 << 14 };
static uint8_t data[size], packed[size + size / 8 + 16], again[size];
static uint32_t table[slots];

static uint32_t four(const uint8_t *p) { uint32_t x; memcpy(&x, p, 4); return x; }

static uint8_t *length(uint8_t *to, uint32_t n)
{
	for (; n >= 128; n >>= 7)
		*to++ = n | 128;
	*to++ = n;
	return to;
}

static uint32_t pack(void)
{
	uint8_t *to = packed;
	uint32_t at = 0, start = 0;

	memset(table, 0, sizeof table);
	while (at + 4 < size) {
		uint32_t hash = four(data + at) * 2654435761u >> 18, before = table[hash];

		table[hash] = at;
		if (before >= at || at - before > 65535 || four(data + before) != four(data + at)) {
			at++;
			continue;
		}
		uint32_t n = 4;
		while (at + n < size && data[before + n] == data[at + n])
			n++;
		to = length(to, at - start);
		memcpy(to, data + start, at - start);
		to += at - start;
		to = length(length(to, n), at - before);
		start = at += n;
	}
	to = length(to, size - start);
	memcpy(to, data + start, size - start);
	return to + (size - start) - packed;
}

static const uint8_t *number(const uint8_t *from, uint32_t *n)
{
	*n = 0;
	for (int shift = 0;; shift += 7) {
		*n |= (uint32_t)(*from & 127) << shift;
		if (!(*from++ & 128))
			return from;
	}
}

static void unpack(void)
{
	const uint8_t *from = packed;

	for (uint32_t at = 0, n, back; at < size;) {
		from = number(from, &n);
		for (uint32_t i = 0; i < n; i++)
			again[at++] = *from++;
		if (at >= size)
			break;
		from = number(number(from, &n), &back);
		for (uint32_t i = 0; i < n; i++, at++)
			again[at] = again[at - back];
	}
}

int main(void)
{
	static const char *words[] = {"the ", "guest ", "memory ", "runs ", "address ", "of ", "and ", "container ", "a ", "page\n"};
	uint32_t seed = 1;

	for (uint32_t at = 0; at < size;) {
		seed = seed * 1664525 + 1013904223;
		const char *word = words[(seed >> 16) % 10];
		for (; *word && at < size; word++)
			data[at++] = *word;
		if (seed >> 28 == 3 && at < size)
			data[at++] = seed >> 8;
	}
	uint32_t length = pack();
	unpack();
	result("%u %d\n", length, memcmp(data, again, size));
}
