package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/keeper"
)

// restartPause is how long a keeper waits before it starts a successor of a shim that has lived shorter: one that does not get on its feet.
const restartPause = time.Second

// keep starts shims, one after the other, for as long as one dies. They inherit the listening socket, which is refused to nobody
// meanwhile.
func (a arguments) keep() error {
	runtime.GOMAXPROCS(1)
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: a.logLevel()}))
	lowerOOMScore(logger)
	socket := os.NewFile(inherited, "socket")
	if _, err := socket.Stat(); err != nil {
		return fmt.Errorf("keep: descriptor 3 is not open: %w", err)
	}
	settled, _ := shim.GiveMemoryBackSoon()
	return keeper.Run(keeper.Options{
		Shim: func(link *os.File) *exec.Cmd {
			cmd := exec.Command("/proc/self/exe", a.kept()...)
			cmd.Args[0] = os.Args[0]
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			cmd.ExtraFiles = []*os.File{socket, link}
			return cmd
		},
		Pause: restartPause, Settled: settled, Logger: logger,
	})
}

// kept is the command line of a kept shim.
func (a arguments) kept() []string {
	args := []string{"-namespace", a.Namespace, "-socket", a.Socket, "-wasm-cache", a.WasmCache, "-kept"}
	if a.Debug {
		args = append(args, "-debug")
	}
	return append(args, "serve")
}
