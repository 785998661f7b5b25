// What make bench-wasm compares guest processes with: a process that is as small as one with wasmtime can be.
//
//	wasmtime-host compile MODULE FILE   compiles a module ahead of time
//	wasmtime-host run FILE              maps what was compiled and runs it with its own standard streams
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <wasi.h>
#include <wasm.h>
#include <wasmtime.h>

static void check(wasmtime_error_t *error, wasm_trap_t *trap, const char *what)
{
	int code;
	wasm_byte_vec_t text;

	if (!error && !trap)
		return;
	if (error && wasmtime_error_exit_status(error, &code))
		exit(code);
	if (error)
		wasmtime_error_message(error, &text);
	else
		wasm_trap_message(trap, &text);
	fprintf(stderr, "wasmtime-host: %s: %.*s\n", what, (int)text.size, text.data);
	exit(1);
}

static void compile(wasm_engine_t *engine, const char *from, const char *to)
{
	wasm_byte_vec_t bytes, compiled;
	wasmtime_module_t *module;
	FILE *file = fopen(from, "rb");
	long size;

	if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET)) {
		perror(from);
		exit(1);
	}
	wasm_byte_vec_new_uninitialized(&bytes, size);
	if (fread(bytes.data, 1, size, file) != (size_t)size) {
		perror(from);
		exit(1);
	}
	fclose(file);
	check(wasmtime_module_new(engine, (uint8_t *)bytes.data, bytes.size, &module), NULL, "compile");
	check(wasmtime_module_serialize(module, &compiled), NULL, "serialize");
	file = fopen(to, "wb");
	if (!file || fwrite(compiled.data, 1, compiled.size, file) != compiled.size || fclose(file)) {
		perror(to);
		exit(1);
	}
}

static void run(wasm_engine_t *engine, const char *compiled)
{
	wasmtime_module_t *module;
	wasmtime_store_t *store = wasmtime_store_new(engine, NULL, NULL);
	wasmtime_context_t *context = wasmtime_store_context(store);
	wasmtime_linker_t *linker = wasmtime_linker_new(engine);
	wasi_config_t *wasi = wasi_config_new();
	wasmtime_instance_t instance;
	wasmtime_extern_t start;
	wasm_trap_t *trap = NULL;
	const char *argv[] = {compiled};

	check(wasmtime_module_deserialize_file(engine, compiled, &module), NULL, "load");
	check(wasmtime_linker_define_wasi(linker), NULL, "define WASI");
	wasi_config_set_argv(wasi, 1, argv);
	wasi_config_inherit_stdin(wasi);
	wasi_config_inherit_stdout(wasi);
	wasi_config_inherit_stderr(wasi);
	check(wasmtime_context_set_wasi(context, wasi), NULL, "set WASI");
	check(wasmtime_linker_instantiate(linker, context, module, &instance, &trap), trap, "instantiate");
	if (!wasmtime_instance_export_get(context, &instance, "_start", 6, &start) || start.kind != WASMTIME_EXTERN_FUNC) {
		fprintf(stderr, "wasmtime-host: no function _start\n");
		exit(1);
	}
	wasmtime_error_t *error = wasmtime_func_call(context, &start.of.func, NULL, 0, NULL, 0, &trap);
	check(error, trap, "run");
}

int main(int argc, char **argv)
{
	wasm_engine_t *engine = wasm_engine_new();

	if (argc == 4 && !strcmp(argv[1], "compile"))
		compile(engine, argv[2], argv[3]);
	else if (argc == 3 && !strcmp(argv[1], "run"))
		run(engine, argv[2]);
	else {
		fprintf(stderr, "usage: wasmtime-host compile MODULE FILE | run FILE\n");
		return 2;
	}
	return 0;
}
