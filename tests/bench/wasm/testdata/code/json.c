// Makes a text in JSON and reads it: objects, lists, strings with escapes, numbers.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../result.h"

static char text[1 << 20];
static const char *at;
static unsigned kinds[6], letters;
static double sum;

static void space(void)
{
	while (*at == ' ' || *at == '\n' || *at == '\t')
		at++;
}

static void string(void)
{
	for (at++; *at != '"'; at++) {
		if (*at == '\\')
			at++;
		letters += (unsigned char)*at;
	}
	at++;
}

static void number(void)
{
	double value = 0, part = 1;
	int negative = *at == '-';

	for (at += negative; *at >= '0' && *at <= '9'; at++)
		value = value * 10 + (*at - '0');
	if (*at == '.')
		for (at++; *at >= '0' && *at <= '9'; at++)
			value += (*at - '0') * (part /= 10);
	sum += negative ? -value : value;
}

static void value(void)
{
	space();
	switch (*at) {
	case '{':
	case '[':
		kinds[*at == '{']++;
		for (at++, space(); *at != '}' && *at != ']';) {
			value();
			space();
			if (*at == ':' || *at == ',')
				at++;
			space();
		}
		at++;
		break;
	case '"':
		kinds[2]++;
		string();
		break;
	case 't':
	case 'f':
	case 'n':
		kinds[3]++;
		at += *at == 'f' ? 5 : 4;
		break;
	default:
		kinds[4]++;
		number();
	}
}

int main(void)
{
	char *end = text;

	*end++ = '[';
	for (int i = 0; end < text + sizeof text - 300; i++)
		end += sprintf(end, "%s{\"id\": %d, \"name\": \"number \\\"%d\\\" of all\",\n\t\"at\": [%d.%02d, -%d], \"on\": %s, \"of\": null}",
		               i ? ", " : "", i, i * 7, i % 90, i % 100, i % 180, i % 3 ? "true" : "false");
	strcpy(end, "]");
	for (int turn = 0; turn < 6; turn++) {
		at = text;
		value();
	}
	result("%u %u %u %u %u %u %.2f\n", kinds[0], kinds[1], kinds[2], kinds[3], kinds[4], letters, sum);
}
