package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/sunaba-project/sunaba/shim/memory"
	"github.com/sunaba-project/sunaba/shim/shared/supervisor"
)

// restartPause is how long a supervisor waits before it starts the successor of a shim that has
// lived shorter than that.
const restartPause = time.Second

// supervise starts shims, one after the other, for as long as one dies. They inherit the listening
// socket, which refuses no connection meanwhile.
func (a arguments) supervise() error {
	runtime.GOMAXPROCS(1)
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: a.logLevel()}))
	lowerOOMScore(logger)
	socket := os.NewFile(inherited, "socket")
	if _, err := socket.Stat(); err != nil {
		return fmt.Errorf("supervise: descriptor 3 is not open: %w", err)
	}
	settled, _ := memory.GiveBackSoon()
	return supervisor.Run(supervisor.Options{
		Shim: func(link *os.File) *exec.Cmd {
			cmd := exec.Command("/proc/self/exe", a.supervised()...)
			cmd.Args[0] = os.Args[0]
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			cmd.ExtraFiles = []*os.File{socket, link}
			return cmd
		},
		Pause: restartPause, Settled: settled, Logger: logger,
	})
}

// supervised is the command line of a supervised shim.
func (a arguments) supervised() []string {
	args := []string{"-namespace", a.Namespace, "-socket", a.Socket, "-wasm-cache", a.WasmCache, "-supervised"}
	if a.Debug {
		args = append(args, "-debug")
	}
	return append(args, "serve")
}
