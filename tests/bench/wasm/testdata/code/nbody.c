// Five bodies that attract one another, 150,000 steps.
#include <math.h>
#include <stdio.h>

#include "../result.h"

static struct body { double at[3], speed[3], mass; } bodies[5] = {
	{{0, 0, 0}, {0, 0, 0}, 39.47},
	{{4.84, -1.16, -0.10}, {0.606, 2.81, -0.02}, 0.0376},
	{{8.34, 4.12, -0.40}, {-1.01, 1.82, 0.008}, 0.0112},
	{{12.89, -15.11, -0.22}, {1.08, 0.868, -0.01}, 0.0017},
	{{15.37, -25.9, 0.179}, {0.979, 0.594, -0.034}, 0.002},
};

static void step(double time)
{
	for (int i = 0; i < 5; i++)
		for (int j = i + 1; j < 5; j++) {
			struct body *a = bodies + i, *b = bodies + j;
			double d[3], square = 0;

			for (int k = 0; k < 3; k++)
				d[k] = a->at[k] - b->at[k], square += d[k] * d[k];
			double force = time / (square * sqrt(square));
			for (int k = 0; k < 3; k++)
				a->speed[k] -= d[k] * b->mass * force, b->speed[k] += d[k] * a->mass * force;
		}
	for (int i = 0; i < 5; i++)
		for (int k = 0; k < 3; k++)
			bodies[i].at[k] += time * bodies[i].speed[k];
}

int main(void)
{
	for (int i = 0; i < 150000; i++)
		step(0.001);
	result("%.9f %.9f\n", bodies[0].at[0], bodies[4].speed[2]);
}
