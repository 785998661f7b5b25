// Command nonewprivs is the program of critest's image nonewprivs: set-user-id root, it says
// whether that helped.
package main

import (
	"fmt"
	"os"
)

func main() { fmt.Printf("Effective uid: %d\n", os.Geteuid()) }
