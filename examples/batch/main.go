// Command batch is a job that runs to completion: it counts primes, hashes what it reads,
// prints a line for each step and ends with the exit code that it is told. One source makes a Linux
// program and a WASI preview 1 guest:
//
//	CGO_ENABLED=0 GOOS=linux go build -o batch .
//	GOOS=wasip1 GOARCH=wasm go build -o batch.wasm .
//
// BATCH_NAME in the environment names the job in every line.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
)

// job is what the command line asks for.
type job struct {
	name   string
	primes int
	file   string
	stdin  bool
	lines  int
	every  time.Duration
	stderr bool
	code   int
}

func main() { os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr)) }

// run does the job and returns the exit code: 2 for a wrong command line, 1 for a file that cannot
// be read, else what -exit says.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	j := job{name: os.Getenv("BATCH_NAME")}
	if j.name == "" {
		j.name = "batch"
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&j.primes, "primes", 1000, "count the primes below `N`")
	flags.StringVar(&j.file, "file", "", "print the SHA-256 of the file at `PATH`")
	flags.BoolVar(&j.stdin, "stdin", false, "print the SHA-256 of the standard input")
	flags.IntVar(&j.lines, "lines", 0, "print `N` numbered lines, -1 for no end")
	flags.DurationVar(&j.every, "every", 0, "wait `TIME` after each numbered line")
	flags.BoolVar(&j.stderr, "stderr", false, "print the numbered lines to the standard error")
	flags.IntVar(&j.code, "exit", 0, "end with exit code `CODE`")
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	if err := j.do(stdin, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", j.name, err)
		return 1
	}
	return j.code
}

func (j job) do(stdin io.Reader, stdout, stderr io.Writer) error {
	fmt.Fprintf(stdout, "%s: running as %s/%s\n", j.name, runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(stdout, "%s: %d primes below %d\n", j.name, countPrimes(j.primes), j.primes)
	if j.file != "" {
		file, err := os.Open(j.file)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := j.hash(stdout, j.file, file); err != nil {
			return err
		}
	}
	if j.stdin {
		if err := j.hash(stdout, "stdin", stdin); err != nil {
			return err
		}
	}
	out := stdout
	if j.stderr {
		out = stderr
	}
	for n := 1; j.lines < 0 || n <= j.lines; n++ {
		fmt.Fprintf(out, "%s: line %d\n", j.name, n)
		time.Sleep(j.every)
	}
	fmt.Fprintf(stdout, "%s: done\n", j.name)
	return nil
}

// hash prints the SHA-256 and the size of what r holds.
func (j job) hash(stdout io.Writer, name string, r io.Reader) error {
	sum := sha256.New()
	size, err := io.Copy(sum, r)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: sha256 %s %x, %d bytes\n", j.name, name, sum.Sum(nil), size)
	return nil
}

// countPrimes counts the primes below n with the sieve of Eratosthenes.
func countPrimes(n int) int {
	composite := make([]bool, max(n, 2))
	count := 0
	for i := 2; i < n; i++ {
		if composite[i] {
			continue
		}
		count++
		for k := i * i; k < n; k += i {
			composite[k] = true
		}
	}
	return count
}
