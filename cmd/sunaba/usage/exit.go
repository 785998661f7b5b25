package usage

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
