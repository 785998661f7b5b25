// A hash map with lists of nodes: words are counted, looked up and deleted.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../result.h"

enum { slots = 1 << 14, words = 10000 };
struct node {
	struct node *next;
	uint32_t hash, count;
	char word[];
};
static struct node *table[slots];

static uint32_t hashed(const char *word)
{
	uint32_t hash = 2166136261u;

	for (; *word; word++)
		hash = (hash ^ (unsigned char)*word) * 16777619;
	return hash;
}

static struct node **find(const char *word, uint32_t hash)
{
	struct node **place = &table[hash % slots];

	for (; *place; place = &(*place)->next)
		if ((*place)->hash == hash && !strcmp((*place)->word, word))
			break;
	return place;
}

static void add(const char *word)
{
	uint32_t hash = hashed(word);
	struct node **place = find(word, hash);

	if (!*place) {
		size_t length = strlen(word);
		*place = calloc(1, sizeof **place + length + 1);
		(*place)->hash = hash;
		memcpy((*place)->word, word, length + 1);
	}
	(*place)->count++;
}

static void removed(const char *word)
{
	struct node **place = find(word, hashed(word)), *old = *place;

	if (old) {
		*place = old->next;
		free(old);
	}
}

int main(void)
{
	static char names[words][16];
	uint32_t sum = 0, seed = 1;

	for (int i = 0; i < words; i++)
		sprintf(names[i], "word-%d", i * 7919 % 100003);
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < 4 * words; i++) {
			seed = seed * 1664525 + 1013904223;
			add(names[(seed >> 8) % words]);
		}
		for (int i = 0; i < words; i++) {
			struct node *found = *find(names[i], hashed(names[i]));
			sum = sum * 31 + (found ? found->count : 7);
		}
		for (int i = turn; i < words; i += 3)
			removed(names[i]);
	}
	result("%u\n", sum);
}
