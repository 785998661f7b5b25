package node

import (
	"context"
	"strconv"
	"strings"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Counts waits until a container's program, which writes to a file how far it has counted, is above
// a number, and then until it is further. It returns where it was first, and whether it counts on.
func Counts(ctx context.Context, server runtime.RuntimeServiceClient, container, file string, above int) (first int, counts bool) {
	place := func() int {
		answer, err := server.ExecSync(ctx, &runtime.ExecSyncRequest{ContainerId: container, Cmd: []string{"cat", file}, Timeout: 10})
		if err != nil {
			return 0
		}
		n, _ := strconv.Atoi(strings.TrimSpace(string(answer.GetStdout())))
		return n
	}
	if !Within(Patience, func() bool { first = place(); return first > above }) {
		return first, false
	}
	return first, Within(Patience, func() bool { return place() > first })
}
