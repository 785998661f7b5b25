// hello.wasm is this program as a component of WASI 0.2:
//
//	clang --target=wasm32-wasi -nostdlib -Os -Wl,--no-entry -Wl,--strip-all -o core.wasm hello.c
//	wasm-tools component new core.wasm --adapt wasi_snapshot_preview1=wasi_snapshot_preview1.command.wasm -o hello.wasm
//
// wasm-tools is 1.262.0, the adapter is of the crate wasi-preview1-component-adapter-provider 50.0.1
// (Apache-2.0 WITH LLVM-exception).
__attribute__((import_module("wasi_snapshot_preview1"), import_name("fd_write"))) int fd_write(int, const void*, int, int*);
struct iov { const char *p; int n; };
__attribute__((export_name("_start"))) void start(void){ struct iov v = {"hello\n", 6}; int n; fd_write(1, &v, 1, &n); }
