module github.com/sunaba-project/sunaba/tests/tools-wasmtime

go 1.26.8

tool github.com/bytecodealliance/wasmtime-go/v39

require github.com/bytecodealliance/wasmtime-go/v39 v39.0.1 // indirect
