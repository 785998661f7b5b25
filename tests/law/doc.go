// Package law holds the project's laws as tests: which part may import which, what the shim binary
// may link, and a few rules of style that a compiler does not know. Each law carries its reason; a
// change that breaks one either mends itself or argues with the reason here.
package law
