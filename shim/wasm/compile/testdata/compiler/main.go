// Command compiler is the compile face alone, for a test that builds it with another wazero. With the
// argument "link" it says why it does not link machine code.
package main

import (
	"fmt"
	"os"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "link" {
		fmt.Println(compile.LinkCode(nil, nil, nil))
		return
	}
	os.Exit(compile.Main(os.Args[2:]))
}
