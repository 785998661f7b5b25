#include <stdio.h>
#include <unistd.h>

int main(void) {
	printf("up\n");
	fflush(stdout);
	for (;;) sleep(3600);
}
