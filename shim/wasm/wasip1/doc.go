// Package wasip1 is Sunaba's WASI preview 1: the host functions a guest is given.
package wasip1
