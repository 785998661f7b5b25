package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sunaba-project/sunaba/tests/oci"
)

// healthCommand is this program in a container of the manifests for gRPC probes: it serves
// grpc.health.v1 on port 9000. The service "app" is healthy after two seconds, "again" if the file
// exists that is its argument, which it makes.
const healthCommand = "health"

func serveHealth(file string, stderr io.Writer) int {
	l, err := net.Listen("tcp", ":9000")
	if err != nil {
		fmt.Fprintln(stderr, "health:", err)
		return 1
	}
	states := health.NewServer()
	states.SetServingStatus("app", healthpb.HealthCheckResponse_NOT_SERVING)
	time.AfterFunc(2*time.Second, func() { states.SetServingStatus("app", healthpb.HealthCheckResponse_SERVING) })
	again := healthpb.HealthCheckResponse_SERVING
	if _, err := os.Stat(file); err != nil {
		again = healthpb.HealthCheckResponse_NOT_SERVING
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			fmt.Fprintln(stderr, "health:", err)
			return 1
		}
	}
	states.SetServingStatus("again", again)
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, states)
	if err := server.Serve(l); err != nil {
		fmt.Fprintln(stderr, "health:", err)
	}
	return 1
}

// healthProgram is the file of this program, for an image.
func healthProgram() (oci.File, error) {
	own, err := os.Executable()
	if err != nil {
		return oci.File{}, err
	}
	body, err := os.ReadFile(own)
	return oci.Program("bin/diff", body), err
}
