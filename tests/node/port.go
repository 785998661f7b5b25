package node

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// FreePort is a TCP port that nobody listens on, for somebody who will. It is not one of those that
// the kernel gives to connections, which could have it meanwhile.
func FreePort() (int, error) {
	var problems error
	for range 100 {
		port := 20000 + rand.IntN(10000)
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			problems = errors.Join(problems, err)
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("find a free port: %w", problems)
}
