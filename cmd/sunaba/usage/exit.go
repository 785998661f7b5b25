package usage

import (
	"errors"
	"fmt"
)

// Exit codes of commands that otherwise end with their program's code, as shells and docker have
// them.
const (
	// Failed is that sunaba itself failed, before or beside the program.
	Failed = 125
	// NotExecutable is that the program is there and cannot be executed.
	NotExecutable = 126
	// NotFound is that there is no such program.
	NotFound = 127
	// Interrupted is that SIGINT or SIGTERM ended the command.
	Interrupted = 130
)

// Failure is an error that ends the program with a code of its own.
type Failure struct {
	Code int
	Err  error
}

// Error is the text of what failed.
func (f Failure) Error() string { return f.Err.Error() }

// Unwrap returns what failed.
func (f Failure) Unwrap() error { return f.Err }

// Exit ends the program with an exit code and no further text.
type Exit int

// Error is for those who do not know it.
func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Own gives an error the code Failed, unless it has a code of its own: it tells failures of sunaba
// apart from those of the program that it runs.
func Own(err error) error {
	var code Exit
	var failed Failure
	if err == nil || errors.As(err, &code) || errors.As(err, &failed) {
		return err
	}
	return Failure{Code: Failed, Err: err}
}
