package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"path/filepath"

	"github.com/sunaba-project/sunaba/tests/suites/builds"
)

const (
	buildsDir    = "builds"                   // of the shared folder: what the host built
	buildsSocket = scratch + "/builds.socket" // where the agent takes jobs
	standInsDir  = scratch + "/bin"           // folder in PATH with the compilers' names
)

// standIn asks the host through the agent.
var standIn = builds.StandIn{Names: standInsDir, Files: agentDir + "/" + buildsDir, Ask: ask}

// ask gives a job to the agent and waits for its answer.
func ask(ctx context.Context, j builds.Job) (answer builds.Built, err error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", buildsSocket)
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(j); err != nil {
		return answer, err
	}
	err = json.NewDecoder(conn).Decode(&answer)
	return answer, err
}

// takeJobs makes the compilers' stand-ins and hands their jobs to the host, whose answers come
// through port.
func (a *agent) takeJobs(port io.Reader) error {
	if err := standIn.Install(filepath.Join(agentDir, agentFile)); err != nil {
		return err
	}
	listener, err := net.Listen("unix", buildsSocket)
	if err != nil {
		return err
	}
	waiting := make(chan chan builds.Built, 1)
	go func() {
		// One job after another: the next answer is that of the last job.
		for answers := json.NewDecoder(port); ; {
			var answer builds.Built
			if err := answers.Decode(&answer); err != nil {
				return
			}
			(<-waiting) <- answer
		}
	}()
	go func() {
		for id := 1; ; id++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			var j builds.Job
			if err := json.NewDecoder(conn).Decode(&j); err == nil {
				j.ID = id
				answer := make(chan builds.Built)
				waiting <- answer
				a.say(event{Build: &j})
				_ = json.NewEncoder(conn).Encode(<-answer) // whoever asked may have been killed
			}
			conn.Close()
		}
	}()
	return nil
}
