package main

import "testing"

// mostGrowth is by how much the agent and its commands may make the program larger, in MB. The bar
// is 2.5, which was missed: 3.3 at first, 3.6 with pods of others, users and limits of the disk in
// the foreground, and pods on foreign servers, 3.62 with streams of runs, 3.69 with the status page,
// which counts to it.
const mostGrowth = 3.75

func TestGrowth(t *testing.T) {
	t.Chdir("../../..")
	with, without, err := sizes(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.2f MB, %.2f without an agent", with, without)
	if more := with - without; more <= 0 || more > mostGrowth {
		t.Errorf("the agent takes %.2f MB of the program, at most %.2f", more, mostGrowth)
	}
}
