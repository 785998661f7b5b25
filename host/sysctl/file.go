package sysctl

import (
	"errors"
	"os"
	"strings"
)

// folder is where the kernel shows its parameters.
const folder = "/proc/sys/"

// Read returns a parameter's value in the namespaces of the calling thread.
func Read(name string) (string, error) {
	data, err := os.ReadFile(folder + Slashed(name))
	return strings.TrimSpace(string(data)), err
}

// Is says whether a parameter can be read and has this value.
func Is(name, value string) bool {
	have, err := Read(name)
	return err == nil && have == value
}

// Write sets a parameter in the namespaces of the calling thread. It does not check the name.
func Write(name, value string) error {
	f, err := os.OpenFile(folder+Slashed(name), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
