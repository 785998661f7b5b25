package main

// removedKeys says what happened to keys that a configuration file once had. "*" is the name of a
// handler.
var removedKeys = map[string]string{
	"images.parallel_fetches":    "removed: all pulls together fetch 8 blobs at a time",
	"images.parallel_layers":     "removed: one pull fetches 4 layers at a time, and all pulls together 8",
	"images.range_threshold_mib": "removed: a blob of at least 32 MiB is fetched in parts",
	"images.range_size_mib":      "removed: the parts of a blob have 4 MiB",
	"images.range_memory_mib":    "removed: the parts of blobs that wait take at most 32 MiB",
	"images.connect_timeout":     "removed: the limit is 30s; dial_timeout in a registry's hosts.toml sets another one",
	"images.retries":             "removed: what may succeed later is retried 5 times",
	"images.max_retry_after":     "removed: the limit is 2m",
	"images.preload_dir":         "removed: images are imported from the folder \"preload\" below --root, which may be a symbolic link",
	"wasm.cache":                 "removed: compiled modules are in the folder \"wasm\" below --root",
	"wasm.parallel_compilations": "removed: half of the machine's processors compile, at least 2 and at most 8",
	"logs.burst_kib":             "removed: a container may write at once what rate_kib allows in ten seconds",
	"handlers.*.logs.burst_kib":  "removed: a container may write at once what rate_kib allows in ten seconds",
}
