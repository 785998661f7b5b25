// Package wasip3 is the ABI of WASI 0.3: the functions of the world wasi:cli/command@0.3 for a
// lowered component. Its instances are those of package wasip2, whose functions it takes where those
// of 0.3 differ in their errors only: a component of 0.3 imports functions of 0.2 too, by its C
// library. Package async has what is asynchronous.
//
// # Streams
//
// A stream of a file, of a standard stream or of a connection moves data when the guest asks for it.
// What can be done at once is done within the call. Functions of files never wait.
//
// A file or socket that was shared out as a stream is closed with the last of its resource and its
// streams. A name is looked up within the call, which waits, as that of 0.2 does.
package wasip3
