// Sorts 40,000 records by the C library's qsort and by a quicksort of numbers.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../result.h"

enum { count = 40000 };
static struct record { uint32_t key, value; } records[count];
static uint32_t numbers[count];

static int compare(const void *a, const void *b)
{
	uint32_t x = ((const struct record *)a)->key, y = ((const struct record *)b)->key;
	return x < y ? -1 : x > y;
}

static void sort(uint32_t *from, uint32_t *last)
{
	while (from < last) {
		uint32_t middle = from[(last - from) / 2], *i = from, *j = last;

		while (i <= j) {
			while (*i < middle)
				i++;
			while (*j > middle)
				j--;
			if (i <= j) {
				uint32_t x = *i;
				*i++ = *j, *j-- = x;
			}
		}
		sort(from, j);
		from = i;
	}
}

int main(void)
{
	uint32_t seed = 1, sum = 0;

	{
		for (int i = 0; i < count; i++) {
			seed = seed * 1664525 + 1013904223;
			records[i] = (struct record){seed, i};
			numbers[i] = seed ^ seed >> 7;
		}
		qsort(records, count, sizeof *records, compare);
		sort(numbers, numbers + count - 1);
		for (int i = 0; i < count; i++)
			sum = sum * 31 + records[i].value + numbers[i];
	}
	result("%u\n", sum);
}
