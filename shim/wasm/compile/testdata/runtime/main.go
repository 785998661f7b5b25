// Command runtime is little more than Go's runtime: it is compiled fast, and has as much code and
// data as every step of compiling needs.
package main

func main() { println("up") }
