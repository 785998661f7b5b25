package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sunaba-project/sunaba/tests/suites/builds"
)

// A machine asks its host for what its suite wants compiled by files of the folder that they share.
const (
	buildsDir    = "builds" // of the shared folder: jobs, answers and what the host built
	jobSuffix    = ".job"
	answerSuffix = ".answer"
	namesDir     = "/run/compilers" // of a machine: folder in PATH with the compilers' names
	shareDir     = "/run/share"     // where a machine has the shared folder
	buildTimeout = 10 * time.Minute
)

// standIn is a machine's.
var standIn = builds.StandIn{Names: namesDir, Files: shareDir + "/" + buildsDir, Ask: ask}

// ask writes a job and waits for its answer.
func ask(ctx context.Context, j builds.Job) (answer builds.Built, err error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	j.ID = os.Getpid()
	stem := filepath.Join(shareDir, buildsDir, fmt.Sprint(j.ID))
	if err := writeJSON(stem+jobSuffix, j); err != nil {
		return answer, err
	}
	for {
		data, err := os.ReadFile(stem + answerSuffix)
		if err == nil {
			return answer, errors.Join(json.Unmarshal(data, &answer), os.Remove(stem+answerSuffix))
		}
		if !errors.Is(err, os.ErrNotExist) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, fmt.Errorf("wait for what the host builds: %w", context.Cause(ctx))
		case <-time.After(pollEvery / 2):
		}
	}
}

// takeJobs starts the jobs that the machine of a shared folder has written since the last call;
// running counts them. The answers' files are in the shared folder.
func takeJobs(host *builds.Host, share string, running *sync.WaitGroup) error {
	folder := filepath.Join(share, buildsDir)
	jobs, err := filepath.Glob(filepath.Join(folder, "*"+jobSuffix))
	if err != nil {
		return err
	}
	for _, file := range jobs {
		var j builds.Job
		data, err := os.ReadFile(file)
		if err == nil {
			err = errors.Join(json.Unmarshal(data, &j), os.Remove(file))
		}
		if err != nil {
			return fmt.Errorf("read what a machine wants built: %w", err)
		}
		running.Go(func() {
			answer := host.Do(j)
			if answer.Why == "" {
				if err := copyFile(filepath.Join(host.Out, answer.File), filepath.Join(folder, answer.File)); err != nil {
					answer.Why = err.Error()
				}
			}
			// A machine that has ended meanwhile needs no answer, and its folder may be gone.
			_ = writeJSON(strings.TrimSuffix(file, jobSuffix)+answerSuffix, answer)
		})
	}
	return nil
}

// writeJSON writes a file that is there whole or not at all.
func writeJSON(file string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", data, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
