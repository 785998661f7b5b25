// Command httpd is the web server of critest's image httpd: it says its name and answers 200 on
// port 80.
package main

import (
	"fmt"
	"net/http"
	"os"
)

func main() {
	fmt.Println("httpd: serving on port 80")
	err := http.ListenAndServe(":80", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "It works!")
	}))
	fmt.Fprintln(os.Stderr, "httpd:", err)
	os.Exit(1)
}
